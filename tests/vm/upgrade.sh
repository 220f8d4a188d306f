#!/bin/bash
# Runs as root in the container of tests/vm/nspawn: upgrades of the real product under the real units. /releases has releases of this build
# under other version numbers: good (0.1.1), better (0.1.4), and 0.1.2 and 0.1.3 with a connectd that ends at once, or never answers.
# One line a finding.
set -u
failed=0
ok() { # ok WHAT COMMAND...
	local what=$1; shift
	if "$@" >/tmp/ok.out 2>&1; then echo "ok: $what"; else echo "FAILED: $what: $(tail -3 /tmp/ok.out | tr '\n' ' ')"; failed=1; fi
}
until_ok() { # until_ok SECONDS COMMAND...
	local end=$((SECONDS + $1)); shift
	until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || return 1; sleep 0.2; done
}
status_is() { edgectl status >/dev/null 2>&1; [ $? = "$1" ]; }
is() { [ "$1" = "$2" ] || { echo "is '$1', wanted '$2'"; return 1; }; }
version_of() { /var/lib/edgeward/current/edgectl version 2>/dev/null | sed -n "s/^$1 *//p"; }
last() { edgectl -j upgrade --history | python3 -c 'import json, sys; e = json.load(sys.stdin)["history"][-1]; print(e["outcome"], e["code"])'; }
units_are_up() {
	local u
	for u in privhelper.service connectd.service workerd.service upgrade.path upgrade-boot.service; do
		[ "$(systemctl is-active edgeward-$u)" = active ] || { echo "$u is $(systemctl is-active edgeward-$u)"; return 1; }
	done
}
hub() { edgehub serve -d /var/lib/edgehub -l 127.0.0.1:8443 >>/tmp/hub.log 2>&1 & hub=$!; until_ok 10 edgehub status; }

systemd-sysusers && systemd-tmpfiles --create edgeward.conf
echo "65600 8 $(getent group edgeward-run | cut -d: -f3)" >/etc/edgeward/pool
printf '[hub]\nurl = wss://127.0.0.1:8443/api/executors/connect\nca-file = /etc/edgeward/ca.pem\n[link]\nretry-min = 100ms\nretry-max-local = 1s\n' >/etc/edgeward/edgeward.conf
ip link set lo up 2>/dev/null
hub
cp /var/lib/edgehub/ca.pem /etc/edgeward/ca.pem
systemctl enable --now edgeward-privhelper edgeward-workerd edgeward-connectd edgeward-upgrade.path edgeward-upgrade-boot 2>/dev/null
edgehub token create --name vm | edgectl enroll --token-file - >/tmp/enroll.out 2>&1
ok "enrolled, all is well" until_ok 15 status_is 0
packaged=$(readlink /var/lib/edgeward/current)
ok "the packaged release runs" test -x "$packaged/connectd"
ok "a file is checked first" grep -q "^release good" <(edgectl upgrade --check /releases/good.release)

# While work runs and streams: the workload keeps its pid, not one byte is lost.
edgehub run vm --workdir w -- sh -c 'i=0; while [ ! -e stop ]; do echo $i; i=$((i+1)); sleep 0.1; done; exit 5' >/tmp/long.out 2>&1 &
long=$!
until_ok 10 grep -q '^5$' /tmp/long.out
pid=$(edgectl -j workloads | python3 -c 'import json, sys; print(json.load(sys.stdin)["workloads"][0]["pid"])')
edgectl upgrade /releases/good.release --settle 3 >/tmp/good.out 2>&1
ok "a good release: done ($(tr '\n' ';' </tmp/good.out))" is $? 0
ok "connectd is the new one" is "$(version_of connectd)" 0.1.1
ok "workerd is the new one" is "$(version_of workerd)" 0.1.1
ok "privhelper is the new one" is "$(version_of privhelper)" 0.1.1
ok "the launcher is the old one while work runs" is "$(version_of launcher)" 0.1.0
ok "current and updater lead to it" is "$(readlink /var/lib/edgeward/current) $(readlink /var/lib/edgeward/updater)" "releases/1001 releases/1001"
ok "units are up" units_are_up
ok "all is well" until_ok 15 status_is 0

edgectl upgrade /releases/crash.release --settle 3 >/tmp/crash.out 2>&1
ok "one that ends at once: exit code 1" is $? 1
ok "rolled back, because it crashed" is "$(last)" "rolled-back crashed"
ok "the former one runs" is "$(version_of connectd)" 0.1.1
ok "units are up after that" units_are_up
ok "all is well after that" until_ok 15 status_is 0

edgectl upgrade /releases/hang.release --settle 3 >/tmp/hang.out 2>&1
ok "one that hangs: exit code 1" is $? 1
ok "rolled back, because it did not answer" is "$(last)" "rolled-back unhealthy"
ok "the former one runs after that, too" is "$(version_of connectd)" 0.1.1
ok "units are up after the hanging one" units_are_up
ok "all is well after the hanging one" until_ok 15 status_is 0
ok "the workload has kept its pid" is "$(edgectl -j workloads | python3 -c 'import json, sys; print(json.load(sys.stdin)["workloads"][0]["pid"])')" "$pid"
touch /var/lib/edgeward/work/w/stop
wait $long
ok "the run has its exit code" is $? 5
ok "and its output is whole" is "$(cat /tmp/long.out)" "$(seq 0 $(($(wc -l </tmp/long.out) - 1)))"

# Offline: the hub goes away while the release is on trial. It stays on trial until there is a session again.
edgectl upgrade /releases/better.release --settle 5 --no-wait >/tmp/better.out 2>&1
until_ok 20 bash -c '[ "$(readlink /var/lib/edgeward/current)" = releases/1004 ]'
kill $hub; wait $hub 2>/dev/null
sleep 8
ok "offline: still on trial" grep -q "sequence 1004 (0.1.4), trial" <(edgectl upgrade --check)
ok "offline: not for good either" is "$(readlink /var/lib/edgeward/updater)" releases/1001
hub
ok "with a session again: for good" until_ok 40 bash -c '[ "$(readlink /var/lib/edgeward/updater)" = releases/1004 ]'
until_ok 5 bash -c '[ ! -e /var/lib/edgeward/upgrade/state ]'
ok "and told so" is "$(last)" "done ok"
ok "without work the launcher is the new one, too" is "$(version_of launcher)" 0.1.4
ok "one release is kept" is "$(ls /var/lib/edgeward/releases)" 1004

# What edgeward-net can file: taken, refused, and the path unit goes on.
for what in 'ln -s /etc/shadow' 'ln -s /nowhere' 'mkfifo' 'mkdir -p'; do
	setpriv --reuid edgeward-net --regid edgeward-net --clear-groups $what /var/lib/edgeward/connectd/upgrade-request
	ok "edgeward-net: $what: taken" until_ok 15 bash -c '[ ! -e /var/lib/edgeward/connectd/upgrade-request ] && [ ! -L /var/lib/edgeward/connectd/upgrade-request ]'
	until_ok 15 bash -c '[ "$(systemctl is-active edgeward-upgrade.service)" = inactive ]'
done
ok "refused" is "$(last)" "refused bad-request"
ok "units are up after bad requests" units_are_up
ok "all is well after bad requests" until_ok 15 status_is 0

# The packaged release is of a higher sequence after a package upgrade: it takes over at boot.
echo "release 0.1.0 2000" >"$packaged/release"
systemctl restart edgeward-upgrade-boot
ok "a packaged release takes over at boot" is "$(readlink /var/lib/edgeward/current)" "$packaged"
systemctl restart edgeward-privhelper edgeward-workerd edgeward-connectd
ok "and runs" until_ok 20 status_is 0
ok "no filter was hit" bash -c '! journalctl -b --no-pager | grep -E "status=31/SYS|SIGSYS|audit.*type=1326"'
exit $failed
