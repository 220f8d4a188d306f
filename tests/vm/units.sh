#!/bin/bash
# Runs as root where `meson install` has just put its files: in the container of tests/vm/nspawn or the machine of tests/vm/qemu.
# Installs as edgeward(7) says, enrolls at an edgehub on loopback, and looks at what the units make of it.
. /payload/lib.sh

systemd-sysusers && systemd-tmpfiles --create edgeward.conf
ok "work root" is "$(mode /var/lib/edgeward/work)" "edgeward-work:edgeward-run 1770"
ok "state of connectd" is "$(mode /var/lib/edgeward/connectd)" "edgeward-net:edgeward-net 700"
ok "state of workerd" is "$(mode /var/lib/edgeward/workerd)" "edgeward-work:edgeward-work 700"
ok "configuration" is "$(mode /etc/edgeward/edgeward.conf)" "root:root 644"
ok "no daemon's user is an operator" is "$(getent group edgeward | cut -d: -f4)" ""

# What an administrator set stays (B22): a second run of what an installation runs changes nothing of it.
printf '[hub]\nurl = wss://127.0.0.1:8443/api/executors/connect\nca-file = /etc/edgeward/ca.pem\n[link]\nretry-min = 100ms\n' >/etc/edgeward/edgeward.conf
mkdir -p /etc/systemd/system/edgeward-connectd.service.d
printf '[Service]\nEnvironment=no_proxy=127.0.0.1\n' >/etc/systemd/system/edgeward-connectd.service.d/own.conf
before=$(sha256sum /etc/edgeward/* /etc/systemd/system/edgeward-connectd.service.d/* 2>/dev/null)
systemd-sysusers && systemd-tmpfiles --create edgeward.conf && systemctl daemon-reload
ok "B22: the administrator's files are untouched" is "$(sha256sum /etc/edgeward/* /etc/systemd/system/edgeward-connectd.service.d/* 2>/dev/null)" "$before"
systemctl cat edgeward-connectd >/tmp/cat.out
ok "B22: the drop-in counts" grep -q no_proxy /tmp/cat.out

start_hub
cp /var/lib/edgehub/ca.pem /etc/edgeward/ca.pem
ok "nothing starts by itself" is "$(systemctl is-active edgeward-connectd.socket)" inactive
[ -e /dev/fuse ] || : >/dev/fuse	# any file serves to see that it is hidden
chmod 666 /dev/fuse
systemctl enable --now edgeward-account.path edgeward-privhelper edgeward-workerd edgeward-connectd 2>/dev/null
# B123, B124: workerd asked for ids, root's one-shot made the account and reserved them, and they are taken up without a restart.
ok "ids for workloads are there" until_ok 30 test -s /etc/edgeward/pool
ok "and workerd has taken them up" until_ok 10 status_has workerd.uid_pool=true
read -r first count gid </etc/edgeward/pool
ok "64 of them, of the group edgeward-run" is "$count $gid" "64 $(getent group edgeward-run | cut -d: -f3)"
ok "what asks for them can be no link" is "$(mode /run/edgeward/account-request) $(mode /run/edgeward)" "edgeward-work:edgeward-work 600 root:root 755"
ok "above all ranges of accounts" test "$first" -ge 65536
ok "edgeward-run is locked and of the system" is "$(getent shadow edgeward-run | cut -d: -f2 | cut -c1) $(($(id -u edgeward-run) < 1000))" "! 1"
ok "what became of it is told" until_ok 5 grep -q "^ok uids $first" /run/edgeward/account
ok "not enrolled: degraded, exit code 3" until_ok 5 status_is 3
edgehub token create --name vm | edgectl enroll --token-file - >/tmp/enroll.out 2>&1
ok "enrolled" grep -q "enrolled as" /tmp/enroll.out
ok "all is well, exit code 0" until_ok 15 status_is 0
for unit in privhelper connectd workerd; do
	ok "$unit: never restarted" is "$(systemctl show -p NRestarts --value edgeward-$unit)" 0
	ok "$unit: notified" is "$(systemctl show -p StatusErrno -p SubState --value edgeward-$unit | tr '\n' ' ')" "0 running "
done

# Privileges, as SECURITY.md promises them.
expect() { # expect NAME PID UID CAPS
	ok "$1: uid" is "$(field "$2" Uid | cut -f1)" "$3"
	ok "$1: permitted capabilities" is "$(field "$2" CapPrm)" "$4"
	ok "$1: ambient capabilities" is "$(field "$2" CapAmb)" 0000000000000000
	ok "$1: seccomp" is "$(field "$2" Seccomp)" 2
	ok "$1: no_new_privs" is "$(field "$2" NoNewPrivs)" 1
}
# It may just have been started again, for the new ids: what it does not need goes in its first moments.
until_ok 10 bash -c "grep -q '^CapPrm:.0000000000001000' /proc/\$(systemctl show -p MainPID --value edgeward-privhelper)/status"
expect privhelper "$(main_pid privhelper)" 0 0000000000001000
expect connectd "$(main_pid connectd)" "$(id -u edgeward-net)" 0000000000000000
expect launcher "$(main_pid workerd)" "$(id -u edgeward-work)" 00000000000000c0
expect workerd "$(pgrep -x workerd)" "$(id -u edgeward-work)" 0000000000000000
ok "connectd: nothing in its /run but what it needs" is \
    "$(nsenter -m -t "$(main_pid connectd)" find /run -mindepth 1 -maxdepth 1 -printf '%f ' | tr ' ' '\n' | grep -vE '^(edgeward|systemd|NetworkManager|resolvconf|)$')" ""
ok "connectd: does not see the work" bash -c "! nsenter -m -t $(main_pid connectd) ls /var/lib/edgeward/work >/dev/null 2>&1 ||
    [ \"\$(nsenter -m -t $(main_pid connectd) stat -c %a /var/lib/edgeward/work)\" = 0 ]"
ok "privhelper: no network but its own loopback" is "$(nsenter -n -t "$(main_pid privhelper)" ip -o link | wc -l)" 1

# Operators and others.
useradd -M -G edgeward op && useradd -M other
ok "a member of group edgeward may ask" setpriv --reuid op --regid op --init-groups edgectl status
setpriv --reuid other --regid other --init-groups edgectl status >/tmp/other.out 2>&1
ok "others may not, exit code 5" is $? 5
ok "and are told what to do" grep -q "member of group edgeward" /tmp/other.out
setpriv --reuid other --regid other --init-groups socat -u OPEN:/dev/null UNIX-CONNECT:/run/edgeward/introduce.sock,type=5 >/tmp/intro.out 2>&1
ok "nor may they be introduced" grep -q "Permission denied" /tmp/intro.out

# Work: as a runner, in its own cgroup, through deaths of everything but the launcher.
edgehub run vm --workdir one -- sh -c 'id -u; cat /proc/self/cgroup; grep -E "^Cap(Prm|Eff|Inh|Amb|Bnd)|NoNew" /proc/self/status; umask; exit 7' >/tmp/run.out 2>&1
code=$?; ok "exit code of a run" is "$code$([ $code = 7 ] || cat /tmp/run.out)" 7
ok "it runs as a runner" grep -q '^655[3-9][0-9]$' /tmp/run.out
ok "in its own cgroup of the unit" grep -q '/edgeward-workerd.service/' /tmp/run.out
ok "/dev/fuse can be opened" setpriv --reuid edgeward-work --clear-groups sh -c 'exec 3<>/dev/fuse'
ok "but not by what workerd's unit starts" bash -c "! nsenter -m -t $(main_pid workerd) setpriv --reuid edgeward-work --clear-groups sh -c 'exec 3<>/dev/fuse' 2>/dev/null"
ok "without capabilities" bash -c '! grep -E "^Cap(Prm|Eff|Inh|Amb)" /tmp/run.out | grep -qv "0000000000000000$"'
edgehub run vm --workdir two -- sh -c 'i=0; while [ $i -lt 90 ]; do echo $i; i=$((i+1)); sleep 0.1; done' 2>/tmp/long.err >/tmp/long.out &
long=$!
until_ok 10 grep -q '^3$' /tmp/long.out
kill -9 "$(main_pid connectd)"; sleep 1.5
kill -9 "$(pgrep -x workerd)"; sleep 1.5
kill -9 "$(main_pid privhelper)"; sleep 1.5
old=$(pgrep -x workerd); systemctl reload edgeward-workerd; until_ok 5 bash -c "[ \$(pgrep -x workerd) != $old ]"
ok "reload replaced workerd" bash -c "[ \$(pgrep -x workerd) != $old ]"
wait $long
ok "a run outlives kill -9 of connectd, workerd, privhelper and a reload" is $? 0
ok "and its output is whole" is "$(cat /tmp/long.out)" "$(seq 0 89)"
ok "all is well again" until_ok 15 status_is 0
# The launcher's end is the end of the work, told once as lost.
edgehub run vm --workdir three -- sleep 1000 >/tmp/lost.out 2>&1 & lost=$!
until_ok 10 pgrep -f '^sleep 1000'
kill -9 "$(main_pid workerd)"
wait $lost
ok "the launcher's end loses the run" is $? 122
ok "and nothing of it is left" bash -c '! pgrep -f "^sleep 1000"'
ok "all is well after that, too" until_ok 15 status_is 0
# A watchdog that is not fed ends the process, and it is started again.
kill -STOP "$(main_pid connectd)"
edgectl status >/tmp/hung.out; ok "a hung connectd: exit code 3" is $? 3
ok "and it is named" grep -q "connectd    DOWN: does not answer" /tmp/hung.out
kill -CONT "$(main_pid connectd)"
for unit in connectd privhelper workerd; do
	mkdir -p /run/systemd/system/edgeward-$unit.service.d
	printf '[Service]\nWatchdogSec=%ss\nTimeoutAbortSec=1s\n' $((2 * SLOW)) >/run/systemd/system/edgeward-$unit.service.d/watchdog.conf
done
systemctl daemon-reload
systemctl restart edgeward-privhelper edgeward-workerd edgeward-connectd
ok "with a short watchdog: all is well" until_ok 20 status_is 0
for unit in connectd privhelper workerd; do
	n=$(systemctl show -p NRestarts --value edgeward-$unit)
	kill -STOP "$(main_pid $unit)"
	ok "a hung $unit is ended by the watchdog and started again" until_ok 20 bash -c "[ \$(systemctl show -p NRestarts --value edgeward-$unit) -gt $n ]"
	ok "and all is well" until_ok 20 status_is 0
done
ok "none of them without a reason" is "$(journalctl -b --no-pager -q | grep -c 'Watchdog timeout')" 3
# workerd is not the main process: its own alarm ends it when it hangs. (A stopped one gets it when it goes on.) Work outlives that.
edgehub run vm --workdir four -- sh -c 'i=0; while [ $i -lt 150 ]; do echo $i; i=$((i+1)); sleep 0.1; done' 2>/tmp/hung.err >/tmp/hung.out &
long=$!
until_ok 10 grep -q '^3$' /tmp/hung.out
old=$(pgrep -x workerd)
kill -STOP "$old"; sleep $((5 * SLOW)); kill -CONT "$old"
ok "a hung workerd is ended by its alarm, and the next one started" until_ok 10 bash -c "[ -n \"\$(pgrep -x workerd)\" ] && [ \"\$(pgrep -x workerd)\" != $old ]"
ok "which is said" bash -c 'journalctl -b --no-pager -q | grep -q "workerd ended (signal 14)"'
wait $long; ok "a run outlives it" is $? 0
ok "its output is whole" is "$(cat /tmp/hung.out)" "$(seq 0 149)"
ok "and all is well after that" until_ok 20 status_is 0
rm -r /run/systemd/system/edgeward-*.service.d && systemctl daemon-reload
# Stop everything: nothing is left over.
systemctl stop 'edgeward-*.socket' 'edgeward-*.service'
ok "stop leaves no process" bash -c '! pgrep -u edgeward-net,edgeward-work'
edgectl status >/dev/null 2>&1; ok "stopped: exit code 4" is $? 4
systemctl start edgeward-privhelper edgeward-workerd edgeward-connectd
ok "started again: all is well" until_ok 20 status_is 0
for unit in privhelper connectd workerd; do ok "$unit: stops within its time" timeout 10 systemctl stop edgeward-$unit; done
ok "no filter was hit" bash -c '! journalctl -b --no-pager | grep -E "status=31/SYS|SIGSYS|audit.*type=1326"'
exit $failed
