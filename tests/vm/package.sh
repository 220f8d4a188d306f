#!/bin/bash
# The Debian packages as an operator meets them, from the installation to the purge, with an edgehub in another network namespace. Runs
# in the container of tests/vm/nspawn; /debs/1 and /debs/2 hold the packages, 2 is the newer one; /debs/clock.so is another wall clock.
# Three boots. Every part ends with what `edgectl status -j` says, which must be the truth.
. /payload/lib.sh

state_is() { edgectl -j status 2>/dev/null | python3 -c 'import json, sys; d = json.load(sys.stdin); n = d["connectd"]; w = d["workerd"]; sys.exit(not eval(sys.argv[1]))' "$1"; }
state_or_show() { until_ok 40 state_is "$1" || { edgectl -j status | tr -d '\n '; return 1; }; }
truth() { ok "status -j: $1" state_or_show "$2"; }
CONNECTED='d["healthy"] and n["link"] == "connected" and n["cause"] == "" and w["up"] and d["launcher"]["up"] and d["privhelper"]["up"]'
part() { echo "ok: --- $*"; }
hub() { edgehub -d /var/lib/edgehub "$@"; }
network_up() {
	ip netns add hub && ip link add up0 type veth peer name eth0 netns hub && ip address add 10.9.0.2/24 dev up0 && ip link set up0 up &&
	    ip -n hub address add 10.9.0.1/24 dev eth0 && ip -n hub link set lo up && ip -n hub link set eth0 up
}
count() { # a run that counts to $2 in tenths of a second, in the background
	hub run vm --workdir "$1" -- sh -c "i=0; while [ \$i -lt $2 ]; do echo \$i; i=\$((i+1)); sleep 0.1; done" >"/tmp/$1.out" 2>"/tmp/$1.err" &
	until_ok 20 grep -q '^3$' "/tmp/$1.out"
}
left_over() { # what is on the system and names the product; the journal, dpkg's own records and this test are not meant
	find / -xdev \( -path /proc -o -path /sys -o -path /payload -o -path /debs -o -path /results -o -path /var/log -o -path /var/lib/dpkg \
	    -o -path /tmp -o -path /var/tmp -o -path /root -o -path /home -o -path /work -o -path /opt/dpkg -o -path /opt/unpacked \) -prune -o \( -name '*edgeward*' -o -name '*edgehub*' -o -name 'edgectl*' \) -print
	find /run -name '*edgeward*' -not -path '/run/log/*' -not -path '/run/systemd/*'
}

first_boot() {
	part "installation"
	# A container's own rule that nothing may be started.
	rm -f /usr/sbin/policy-rc.d
	left_over >/root/before
	network_up
	echo "10.9.0.1 hub.test" >>/etc/hosts
	mkdir -p /etc/systemd/system/edgehub.service.d
	printf '[Service]\nNetworkNamespacePath=/run/netns/hub\nExecStart=\nExecStart=/usr/bin/edgehub serve -d /var/lib/edgehub -l 10.9.0.1:8443 -n hub.test\n' \
	    >/etc/systemd/system/edgehub.service.d/own.conf
	ok "dpkg -i" dpkg -i /debs/1/*.deb
	for unit in edgehub edgeward-privhelper edgeward-connectd edgeward-workerd edgeward-upgrade.path; do
		ok "$unit runs" until_ok 10 systemctl -q is-active $unit
		ok "$unit is enabled" systemctl -q is-enabled $unit
	done
	for name in edgeward-net edgeward-work edgehub; do
		ok "B124: $name has a system account's uid" test "$(id -u $name)" -lt 1000 -a "$(id -u $name)" -gt 0
	done
	ok "work root" is "$(mode /var/lib/edgeward/work)" "edgeward-work:edgeward-run 1770"
	ok "status: exit code 3" until_ok 10 status_is 3
	truth "not enrolled, no hub" 'not d["healthy"] and n["up"] and w["up"] and n["link"] == "unenrolled" and n["cause"] == "unenrolled" and n["hub"] == ""'

	part "enrollment and work"
	cp /var/lib/edgehub/ca.pem /etc/edgeward/hub-ca.pem && chmod 644 /etc/edgeward/hub-ca.pem
	printf '[hub]\nurl = wss://hub.test:8443/api/executors/connect\nca-file = /etc/edgeward/hub-ca.pem\n[work]\nspool = 16M\n' >/etc/edgeward/edgeward.conf
	ok "ids for workloads" until_ok 30 test -s /etc/edgeward/pool
	systemctl restart edgeward-connectd edgeward-workerd
	ok "enrolled" bash -c 'edgehub -d /var/lib/edgehub token create --name vm | edgectl enroll --token-file -'
	truth "connected" "$CONNECTED and n['agent_id'] != '' and n['peer'].startswith('10.9.0.1') and w['uid_pool']"
	edgectl -j status | python3 -c 'import json, sys; print(json.load(sys.stdin)["connectd"]["agent_id"])' >/root/agent-id
	hub run vm --workdir one -- sh -c 'echo hello; exit 7' >/tmp/one.out 2>&1
	ok "a run's exit code" is $? 7
	ok "and its output" is "$(cat /tmp/one.out)" hello

	part "units under load"
	mkdir -p /etc/systemd/system/edgeward-connectd.service.d
	printf '[Service]\nEnvironment=OWN=1\n' >/etc/systemd/system/edgeward-connectd.service.d/own.conf
	systemctl daemon-reload
	count load 90; local run=$! old
	old=$(pgrep -x workerd); systemctl reload edgeward-workerd
	ok "reload replaces workerd" until_ok 10 bash -c "[ -n \"\$(pgrep -x workerd)\" ] && [ \"\$(pgrep -x workerd)\" != $old ]"
	systemctl restart edgeward-connectd; sleep 1
	systemctl restart edgeward-privhelper
	wait $run; ok "the run's exit code" is $? 0
	ok "and its whole output" is "$(cat /tmp/load.out)" "$(seq 0 89)"
	truth "connected, one workload done" "$CONNECTED and w['running'] == 0"
	count ends 1000; run=$!
	systemctl restart edgeward-workerd
	wait $run; ok "a restart of edgeward-workerd ends work and says so" is $? 122
	truth "connected after that" "$CONNECTED"

	part "a newer package while work runs"
	before=$(sha256sum /etc/edgeward/*.conf /etc/systemd/system/edgeward-connectd.service.d/own.conf)
	systemctl disable --now edgeward-upgrade.path 2>/dev/null
	count upgrade 150; run=$!
	local launcher connectd workerd
	launcher=$(main_pid workerd) connectd=$(main_pid connectd) workerd=$(pgrep -x workerd)
	ok "dpkg -i of the newer one" dpkg -i /debs/2/*.deb
	ok "configuration and drop-in are untouched" is "$(sha256sum /etc/edgeward/*.conf /etc/systemd/system/edgeward-connectd.service.d/own.conf)" "$before"
	ok "connectd is a new process" test "$(main_pid connectd)" != "$connectd"
	ok "workerd is a new process" until_ok 10 bash -c "[ -n \"\$(pgrep -x workerd)\" ] && [ \"\$(pgrep -x workerd)\" != $workerd ]"
	ok "the launcher is the same one" is "$(main_pid workerd)" "$launcher"
	ok "what was disabled stays so" is "$(systemctl is-enabled edgeward-upgrade.path)" disabled
	systemctl enable --now edgeward-upgrade.path 2>/dev/null
	wait $run; ok "the run's exit code" is $? 0
	ok "and its whole output" is "$(cat /tmp/upgrade.out)" "$(seq 0 149)"
	truth "connected after the upgrade" "$CONNECTED"

	part "the resolver is absent"
	cp /etc/resolv.conf /root/resolv.conf 2>/dev/null
	sed -i '/hub\.test/d' /etc/hosts
	rm -f /etc/resolv.conf; echo "nameserver 10.9.0.77" >/etc/resolv.conf
	edgectl reconnect >/dev/null
	truth "the name is the trouble" 'not d["healthy"] and n["link"] in ("waiting", "resolving") and n["cause"].startswith("dns") and n["detail"] != ""'
	echo "10.9.0.1 hub.test" >>/etc/hosts
	truth "connected when the name is back" "$CONNECTED"

	part "the disk is full"
	# First what [work] disk-low (64M) forbids; the hub, on the same disk, still has room.
	fallocate -l $(($(stat -f -c '%a * %S' /var/lib/edgeward) - (20 << 20))) /var/lib/fill
	ok "a start is refused, and the reason named" bash -c 'edgehub -d /var/lib/edgehub run vm --workdir full -- echo no 2>&1 | grep -i "disk"'
	truth "connected, little room" "$CONNECTED and w['disk_free'] < 64 << 20 and w['refused'] > 0"
	dd if=/dev/zero of=/var/lib/fill2 bs=64k >/dev/null 2>&1
	truth "connected, no room" "n['link'] == 'connected' and w['up'] and w['disk_free'] < 1 << 20 and w['cause'] == 'disk-full'"
	rm -f /var/lib/fill /var/lib/fill2
	ok "with room again work runs" is "$(hub run vm --workdir full -- echo yes 2>/dev/null)" yes
	truth "connected after that" "$CONNECTED and w['disk_free'] > 1 << 20"

	part "journald is stopped"
	systemctl stop systemd-journald.socket systemd-journald-dev-log.socket systemd-journald-audit.socket systemd-journald.service 2>/dev/null
	ok "a run" is "$(hub run vm --workdir quiet -- echo heard 2>/dev/null)" heard
	kill -9 "$(main_pid connectd)"
	truth "connected without a journal" "$CONNECTED"
	systemctl start systemd-journald.socket systemd-journald-dev-log.socket systemd-journald.service 2>/dev/null
	# The stream of a process to a journald that was stopped is lost with it; the next process has its own.
	systemctl restart edgeward-connectd
	ok "and the next process is in the journal" until_ok 20 bash -c "journalctl -q -b _PID=$(main_pid connectd) | grep -q connectd"
	truth "connected with it" "$CONNECTED"

	part "a reboot while work runs"
	hub run vm --workdir lost --detach -- sh -c 'echo before the reboot; sleep 100000' >/var/lib/lost-handle
	ok "it runs" until_ok 20 pgrep -f '^sleep 100000'
	truth "one runs" "$CONNECTED and w['running'] == 1"
	sleep 1
	touch /again
}

second_boot() {
	part "a boot without a network"
	for unit in privhelper connectd workerd; do ok "$unit runs" until_ok 20 systemctl -q is-active edgeward-$unit; done
	truth "the link is the trouble, with cause and next attempt" 'not d["healthy"] and n["up"] and w["up"] and n["link"] != "connected" and n["attempts"] > 0 and n["cause"] != "" and n["detail"] != ""'
	ok "exit code 3" status_is 3
	network_up
	systemctl restart edgehub
	truth "connected when there is one" "$CONNECTED"
	local h; h=$(cat /var/lib/lost-handle)
	ok "the run that the reboot ended is told as lost" until_ok 30 bash -c "edgehub -d /var/lib/edgehub -j runs vm | tr '{' '\n' | grep '\"$h\"' | grep -q '\"outcome\": *\"lost\"'"
	ok "and its output is there" is "$(hub logs "$h" 2>/dev/null)" "before the reboot"
	truth "nothing is left to report" "$CONNECTED and w['undelivered'] == 0 and w['running'] == 0"
	# For the next boot: a clock that stands in January 1970.
	for unit in connectd workerd; do
		mkdir -p /etc/systemd/system/edgeward-$unit.service.d
		printf '[Service]\nEnvironment=LD_PRELOAD=/debs/clock.so TEST_CLOCK=/debs/offset\n' >/etc/systemd/system/edgeward-$unit.service.d/clock.conf
	done
	python3 -c 'import struct, time; open("/debs/offset", "wb").write(struct.pack("q", 3600 - int(time.time())))'
	chmod 644 /debs/offset
	touch /again
}

third_boot() {
	part "a boot in 1970"
	network_up
	systemctl restart edgehub
	truth "connected, and the clock is named" "n['link'] == 'connected' and n['cause'] == 'clock-implausible' and w['up'] and n['clock_implausible'] and n['clock_floor'] > '2025'"
	ok "work runs" is "$(hub run vm --workdir early -- echo early 2>/dev/null)" early
	rm /etc/systemd/system/edgeward-*.service.d/clock.conf
	systemctl daemon-reload; systemctl restart edgeward-connectd edgeward-workerd
	truth "connected, the clock is right" "$CONNECTED and not n['clock_implausible']"

	part "removal and purge"
	ok "dpkg -r" dpkg -r edgeward
	ok "no process is left" bash -c '! pgrep -u edgeward-net,edgeward-work'
	ok "identity and configuration stay" test -s /etc/edgeward/edgeward.conf -a -d /var/lib/edgeward/connectd
	ok "installed again" dpkg -i /debs/2/edgeward_*.deb
	truth "the same device, connected" "$CONNECTED and n['agent_id'] == '$(cat /root/agent-id)'"
	hub run vm --workdir purge --detach -- sleep 100001 >/dev/null; until_ok 20 pgrep -f '^sleep 100001'
	ok "dpkg -P with work running" dpkg -P edgeward edgeward-hub
	ok "no process is left" bash -c '! pgrep -f "^sleep 10000[1]|[/]edgeward/|bin/[e]dgehub"'
	ok "no account is left" bash -c '! getent passwd edgeward-net edgeward-work edgeward-run edgehub && ! getent group edgeward edgeward-ipc edgeward-run edgeward-net edgeward-work edgehub'
	left_over >/root/after
	ok "no file is left" diff /root/before /root/after
	part "what must be refused"
	useradd -M -u 1500 edgeward-net
	dpkg -i /debs/1/edgeward_*.deb >/tmp/refused.out 2>&1; ok "B123: an account of the human range" test $? != 0
	ok "the cause is named" grep -q "edgeward-net exists with uid 1500" /tmp/refused.out
	ok "nothing was installed" test ! -e /usr/bin/edgectl -a ! -e /lib/systemd/system/edgeward-connectd.service
	dpkg -P edgeward >/dev/null 2>&1; userdel edgeward-net
	useradd -M -r edgeward-work -g nogroup
	dpkg -i /debs/1/edgeward_*.deb >/tmp/refused.out 2>&1; ok "B123: another primary group" grep -q "another primary group" /tmp/refused.out
	dpkg -P edgeward >/dev/null 2>&1; userdel edgeward-work
	mkdir -p /etc/sysusers.d
	dpkg-deb --fsys-tarfile /debs/1/edgeward_*.deb | tar -xO ./usr/lib/sysusers.d/edgeward.conf | sed 's/^u edgeward-net -/u edgeward-net 1501/' \
	    >/etc/sysusers.d/edgeward.conf
	ok "B124: an override of sysusers.d" dpkg -i /debs/1/edgeward_*.deb
	ok "counts" is "$(id -u edgeward-net)" 1501
	dpkg -P edgeward >/dev/null 2>&1; rm -f /etc/sysusers.d/edgeward.conf
	part "the archive for other distributions"
	left_over >/root/before
	mkdir -p /opt/unpacked && tar -C /opt/unpacked --strip-components=1 -xzf /debs/edgeward-*.tar.gz
	ok "install -n changes nothing" bash -c '/opt/unpacked/install -n && ! [ -e /usr/bin/edgectl ]'
	ok "install -H" /opt/unpacked/install -H
	truth "it runs, without a hub" 'n["up"] and w["up"] and n["link"] == "unenrolled"'
	old=$(pgrep -x launcher)
	ok "a second time" /opt/unpacked/install -H
	ok "leaves the launcher alone" is "$(pgrep -x launcher)" "$old"
	ok "and a hub" until_ok 10 hub devices
	ok "uninstall" /usr/lib/edgeward/uninstall
	left_over >/root/after
	ok "leaves nothing" diff /root/before /root/after
	ok "no account, either" bash -c '! getent passwd edgeward-net edgeward-work edgeward-run edgehub && ! getent group edgeward edgeward-ipc edgeward-run'
	part "a read-only /etc and /var"
	cp -a /var/lib/dpkg /opt/dpkg
	unshare -m sh -c 'for d in etc var; do mount --bind /$d /$d && mount -o remount,bind,ro /$d || exit 9; done; dpkg --admindir=/opt/dpkg -i /debs/1/edgeward_*.deb' \
	    >/tmp/ro.out 2>&1; ok "B125: dpkg's exit code" is $? 0
	ok "nothing was written there" test ! -e /etc/edgeward -a ! -e /var/lib/edgeward
	# The next boot of such a system does what is declared.
	systemd-sysusers && systemd-tmpfiles --create >/dev/null 2>&1
	systemctl daemon-reload
	ok "presets" systemctl preset edgeward-privhelper.service edgeward-connectd.service edgeward-workerd.service edgeward-introduce.socket edgeward-connectd.socket edgeward-workerd.socket
	systemctl start edgeward-privhelper edgeward-connectd edgeward-workerd
	truth "it runs, without a hub" 'n["up"] and w["up"] and n["link"] == "unenrolled"'
	rm /etc/edgeward/edgeward.conf /etc/edgeward/policy.conf
	systemctl restart edgeward-privhelper edgeward-connectd edgeward-workerd
	truth "B125: without edgeward.conf it runs, and says so" 'n["up"] and w["up"] and n["cause"] == "unenrolled" and "edgeward.conf" in n["detail"]'
	for unit in privhelper connectd workerd; do ok "$unit: not started again and again" is "$(systemctl show -p NRestarts --value edgeward-$unit)" 0; done
	ok "STATUS= has the code" bash -c 'systemctl show -p StatusText --value edgeward-connectd | grep -q unenrolled'
	ok "doctor names the file" bash -c 'edgectl -j doctor | tr -d "\n" | grep -q "edgeward.conf: the defaults hold"'
}

case $1 in
1) first_boot ;;
2) second_boot ;;
*) third_boot ;;
esac
ok "no filter was hit" bash -c '! journalctl -b --no-pager | grep -E "status=31/SYS|SIGSYS|audit.*type=1326"'
[ $failed = 0 ] || rm -f /again
exit $failed
