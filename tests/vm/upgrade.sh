#!/bin/bash
# Upgrades of the real product under the real units, in the container of tests/vm/nspawn or the machine of tests/vm/qemu. /releases has what
# tests/vm/releases made. After each upgrade all units are enabled and active and all is well.
. /payload/lib.sh
own_edgectl() { local e=/var/lib/edgeward/current/edgectl; [ -x $e ] || e=edgectl; $e "$@"; }
version_of() { own_edgectl version 2>/dev/null | sed -n "s/^$1 *//p"; }
connectd_is() { is "$(version_of connectd)" "$1"; }
last() { edgectl -j upgrade --history | tr -d '\n' | tr '{' '\n' | tail -1 | sed -n 's/.*"outcome": *"\([a-z-]*\)".*"code": *"\([a-z-]*\)".*/\1 \2/p'; }
workload_pid() { edgectl -j workloads | tr '{,' '\n\n' | sed -n 's/^ *"pid": *\([0-9]*\).*/\1/p' | head -1; }
upgrade_state_is() { edgectl upgrade --check | grep -q "$1"; }
idle() { [ ! -e /var/lib/edgeward/upgrade/state ] && [ "$(systemctl is-active edgeward-upgrade.service)" = inactive ]; }
units_are_up() {
	local u
	for u in privhelper.service connectd.service workerd.service upgrade.path upgrade-boot.service; do
		[ "$(systemctl is-active edgeward-$u)" = active ] || { echo "$u is $(systemctl is-active edgeward-$u)"; return 1; }
		[ "$(systemctl is-enabled edgeward-$u)" = enabled ] || { echo "$u is $(systemctl is-enabled edgeward-$u)"; return 1; }
	done
}
all_is_well() { # all_is_well AFTER VERSION OUTCOME
	ok "$1: told as it was" grep -qxE "$3" <<<"$(last)"
	ok "$1: $2 runs" until_ok 10 connectd_is "$2"
	ok "$1: all is well" until_ok 20 status_is 0
	ok "$1: units are enabled and active" until_ok 5 units_are_up
}

systemd-sysusers && systemd-tmpfiles --create edgeward.conf
echo "65600 8 $(getent group edgeward-run | cut -d: -f3)" >/etc/edgeward/pool
{
	printf '[hub]\nurl = wss://127.0.0.1:8443/api/executors/connect\nca-file = /etc/edgeward/ca.pem\n[link]\nretry-min = 100ms\nretry-max-local = 1s\n'
	printf '[upgrade]\nmirror = https://127.0.0.1:8444/m\n'
} >/etc/edgeward/edgeward.conf
printf '[upgrade]\nremote = yes\n' >/etc/edgeward/policy.conf
# An emulated processor needs longer for everything; what a real one may take for a start would send good releases back.
if in_vm; then
	mkdir -p /etc/systemd/system/edgeward-upgrade.service.d
	{ printf '[Service]\nExecStart=\n'; systemctl cat edgeward-upgrade.service | sed -n 's/^\(ExecStart=.*privupgrade\) /\1 -t 60000 /p'; } \
	    >/etc/systemd/system/edgeward-upgrade.service.d/slow.conf
	systemctl daemon-reload
fi
start_hub
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=mirror -addext subjectAltName=IP:127.0.0.1 -keyout /tmp/mirror.key \
    -out /tmp/mirror.pem 2>/dev/null
cat /var/lib/edgehub/ca.pem /tmp/mirror.pem >/etc/edgeward/ca.pem
systemctl enable --now edgeward-privhelper edgeward-workerd edgeward-connectd edgeward-upgrade.path edgeward-upgrade-boot 2>/dev/null
edgehub token create --name vm | edgectl enroll --token-file - >/tmp/enroll.out 2>&1
ok "enrolled, all is well" until_ok 15 status_is 0
packaged=$(readlink /var/lib/edgeward/current)
ok "the packaged release runs" test -x "$packaged/connectd"
ok "a file is checked first" bash -c 'edgectl upgrade --check /releases/good.release | grep -q "^release good"'

# While work runs and streams: the workload keeps its pid, not one byte is lost.
edgehub run vm --workdir w -- sh -c 'i=0; while [ ! -e stop ]; do echo $i; i=$((i+1)); sleep 0.1; done; exit 5' 2>/tmp/long.err >/tmp/long.out &
long=$!
until_ok 10 grep -q '^5$' /tmp/long.out
pid=$(workload_pid)
ok "the workload has a pid" test "${pid:-0}" -gt 1
edgectl upgrade /releases/good.release --settle 3 >/tmp/good.out 2>&1
ok "a good release: done ($(tr '\n' ';' </tmp/good.out))" is $? 0
all_is_well "a good release while work runs" 0.2.0 "done ok"
for who in workerd privhelper; do ok "$who is the new one" is "$(version_of $who)" 0.2.0; done
ok "current and updater lead to it" is "$(readlink /var/lib/edgeward/current) $(readlink /var/lib/edgeward/updater)" "releases/1001 releases/1001"
ok "the workload has kept its pid" is "$(workload_pid)" "$pid"

edgectl upgrade /releases/crash.release --settle 3 >/tmp/crash.out 2>&1
ok "one that ends at once: exit code 1" is $? 1
all_is_well "one that ends at once" 0.2.0 "rolled-back crashed"

edgectl upgrade /releases/hang.release --settle 3 >/tmp/hang.out 2>&1
ok "one that hangs: exit code 1" is $? 1
all_is_well "one that hangs" 0.2.0 "rolled-back unhealthy"

edgectl upgrade /releases/deaf.release --settle 3 >/tmp/deaf.out 2>&1
ok "one that cannot reach the hub: exit code 1" is $? 1
all_is_well "one that the hub does not take although it is there" 0.2.0 "rolled-back (hub-refuses|no-session)"

ok "the workload has kept its pid through all that" is "$(workload_pid)" "$pid"
touch /var/lib/edgeward/work/w/stop
wait $long
ok "the run has its exit code" is $? 5
ok "and its output is whole" is "$(cat /tmp/long.out)" "$(seq 0 $(($(wc -l </tmp/long.out) - 1)))"

# Offline: the hub goes away while the release is on trial. It stays on trial until there is a session again.
edgectl upgrade /releases/better.release --settle 5 --no-wait >/tmp/better.out 2>&1
until_ok 20 bash -c '[ "$(readlink /var/lib/edgeward/current)" = releases/1004 ]'
systemctl stop test-hub
until_ok 20 grep -q "stays on trial" /var/lib/edgeward/upgrade/progress
ok "offline: still on trial" upgrade_state_is "sequence 1004 (0.5.0), trial"
ok "offline: not for good either" is "$(readlink /var/lib/edgeward/updater)" releases/1001
start_hub
ok "with a session again: for good" until_ok 40 bash -c '[ "$(readlink /var/lib/edgeward/updater)" = releases/1004 ]'
until_ok 10 idle
all_is_well "one while offline" 0.5.0 "done ok"
ok "without work the launcher is the new one, too" is "$(version_of launcher)" 0.5.0
ok "one release is kept" is "$(ls -d /var/lib/edgeward/releases/*/ | xargs -n1 basename)" 1004

# Somebody restarts everything all the while, the updater once, too: from the request to the end, of a good release and of each bad kind.
restarted() { # restarted KIND EXIT-CODE VERSION OUTCOME
	local loop code=0
	rm -f /tmp/enough
	( n=0; while [ ! -e /tmp/enough ]; do
		systemctl restart edgeward-connectd edgeward-privhelper edgeward-workerd
		n=$((n + 1))
		[ $n != 2 ] || systemctl --no-block restart edgeward-upgrade.service
		sleep $SLOW
	done; echo $n >/tmp/restarts ) >/tmp/restarts.out 2>&1 &
	loop=$!
	edgectl upgrade "/releases/$1.release" --settle 5 >"/tmp/$1.out" 2>&1 || code=$?
	touch /tmp/enough
	wait $loop
	ok "$1, restarted all the while ($(tr '\n' ';' <"/tmp/$1.out")): exit code" is $code "$2"
	ok "$1, restarted all the while: $(cat /tmp/restarts) times" test "$(cat /tmp/restarts)" -ge 2
	until_ok 20 idle
	all_is_well "$1, restarted all the while" "$3" "$4"
}
restarted best 0 0.7.0 "done ok"
restarted crash2 1 0.7.0 "rolled-back (crashed|unhealthy)"
restarted mute 1 0.7.0 "rolled-back unhealthy"
restarted stubborn 1 0.7.0 "rolled-back unhealthy"
restarted deaf2 1 0.7.0 "rolled-back (hub-refuses|no-session)"
ok "each of them is marked bad" is "$(edgectl upgrade --history | grep -c rolled-back)" 7

# A hub asks for it: edgehub -> connectd -> the queued request -> path unit -> privupgrade -> trial -> the result in the new one's session.
hub_upgrade() { edgehub -j upgrade vm --settle 10 "$@" >/tmp/hub.out 2>&1; }
hub_says() { grep -q "\"outcome\": *\"$1\"" /tmp/hub.out && grep -q "\"to_version\": *\"$2\"" /tmp/hub.out || { cat /tmp/hub.out; return 1; }; }
hub_upgrade --release /releases/sent.release
ok "a release that the hub sends: exit code" is $? 0
ok "a release that the hub sends: the hub is told" hub_says installed 1.3.0
all_is_well "a release that the hub sends" 1.3.0 "done ok"
hub_upgrade --release /releases/sentbad.release
ok "one that the hub sends and that ends at once: exit code" is $? 3
ok "one that the hub sends and that ends at once: the hub is told" hub_says rolled_back 1.4.0
all_is_well "one that the hub sends and that ends at once" 1.3.0 "rolled-back crashed"
where=/tmp/mirror/m/stable/$(uname -m)
mkdir -p "$where"
{ printf 'HTTP/1.1 200 OK\r\nContent-Length: %s\r\nConnection: close\r\n\r\n' "$(stat -c %s /releases/fetched.release)"; cat /releases/fetched.release; } >"$where/latest.release"
systemd-run --quiet --unit=test-mirror --working-directory=/tmp/mirror openssl s_server -quiet -HTTP -accept 127.0.0.1:8444 -cert /tmp/mirror.pem -key /tmp/mirror.key
hub_upgrade
ok "a release from the mirror: exit code" is $? 0
ok "a release from the mirror: the hub is told" hub_says installed 1.5.0
all_is_well "a release from the mirror" 1.5.0 "done ok"
ok "the history says who asked" is "$(edgectl upgrade --history | grep -c '[0-9Z]  hub  [0-9]')" 3

# One whose workerd writes its state under higher schema numbers, and which goes back after it has.
schema() { tail -c "$2" "/var/lib/edgeward/workerd/$1" 2>/dev/null | od -An -tu2 -j4 -N2 | tr -d ' '; }      # of its last so many bytes
schemas() { echo "$(schema journal 160) $(schema owners +1)"; }
before=$(edgehub run vm --workdir w -- id -u)
edgectl upgrade /releases/next.release --settle 600 --no-wait >/tmp/next.out 2>&1
next_runs() { [ "$(version_of workerd)" = 1.6.0 ] && connectd_is 1.6.0 && status_is 0; }	# not the old ones, which answer until they are restarted
ok "other state: on trial" until_ok 30 next_runs
ok "other state: a run" is "$(edgehub run vm --workdir other -- echo fine)" fine
ok "other state: its numbers" is "$(schemas)" "2 2"
ok "other state: the operator has enough of it" edgectl upgrade --cancel
until_ok 30 idle
all_is_well "one with other state, which goes back" 1.5.0 "rolled-back cancelled"
ok "other state: a directory has the id it had" is "$(edgehub run vm --workdir w -- id -u)" "$before"
ok "other state: the numbers of before" is "$(schemas)" "1 1"
ok "other state: what it had written is kept, nothing was damaged" bash -c 'cd /var/lib/edgeward/workerd && [ -e journal.schema-2 ] && [ -e owners.schema-2 ] && ! ls ./*.bad*'

# One that answers and that the hub takes, but that does not feed its watchdog: the service manager ends it, and that counts.
mkdir -p /run/systemd/system/edgeward-connectd.service.d
printf '[Service]\nWatchdogSec=%ss\n' $((10 * SLOW)) >/run/systemd/system/edgeward-connectd.service.d/watchdog.conf
systemctl daemon-reload
systemctl restart edgeward-connectd
until_ok 15 status_is 0
edgectl upgrade /releases/unfed.release --settle $((25 * SLOW)) >/tmp/unfed.out 2>&1
ok "one that does not feed its watchdog: exit code 1" is $? 1
rm /run/systemd/system/edgeward-connectd.service.d/watchdog.conf
systemctl daemon-reload
systemctl restart edgeward-connectd
all_is_well "one that does not feed its watchdog" 1.5.0 "rolled-back crashed"

# What edgeward-net can file: taken, refused, and the path unit goes on. A link that leads nowhere counts, too.
mkdir -p /var/lib/edgeward/connectd/tree/a/b && chown -R edgeward-net:edgeward-net /var/lib/edgeward/connectd/tree
for what in 'ln -s /etc/shadow' 'ln -s /nowhere' 'mv /var/lib/edgeward/connectd/tree'; do
	setpriv --reuid edgeward-net --regid edgeward-net --clear-groups $what /var/lib/edgeward/connectd/upgrade-request
	ok "edgeward-net: $what: taken" until_ok 20 bash -c '[ ! -e /var/lib/edgeward/connectd/upgrade-request ] && [ ! -L /var/lib/edgeward/connectd/upgrade-request ]'
done
ok "the directory is given back" until_ok 5 bash -c 'ls -d /var/lib/edgeward/connectd/refused-*'
all_is_well "bad requests" 1.5.0 "refused bad-request"

# The packaged release is of a higher sequence after a package upgrade: it takes over at boot.
echo "release 0.1.0 2000" >"$packaged/release"
systemctl restart edgeward-upgrade-boot
ok "a packaged release takes over at boot" is "$(readlink /var/lib/edgeward/current)" "$packaged"
systemctl restart edgeward-privhelper edgeward-workerd edgeward-connectd
all_is_well "a package" 0.1.0 "refused bad-request"
ok "the self-test's user owns nothing" is "$(find / -xdev -user edgeward-test 2>/dev/null | head -1)" ""
ok "no filter was hit" bash -c '! journalctl -b --no-pager | grep -E "status=31/SYS|SIGSYS|audit.*type=1326"'
exit $failed
