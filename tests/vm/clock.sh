#!/bin/bash
# A machine without a battery for its clock: each boot begins in January 1970 (tests/vm/qemu sets the RTC so), and systemd moves that on to the
# date of its own build at most. Two boots; each part ends with what `edgectl status -j` says, which must be the truth (B26, B28).
. /payload/lib.sh

state_is() { edgectl -j status 2>/dev/null | python3 -c 'import json, sys; d = json.load(sys.stdin); n = d["connectd"]; w = d["workerd"]; sys.exit(not eval(sys.argv[1]))' "$1"; }
truth() { ok "status -j: $1" until_ok 40 state_is "$2" || edgectl -j status; }
BEFORE='n["clock_implausible"] and n["clock_floor"] > "2025"'
hub() { edgehub -d /var/lib/edgehub "$@"; }
floor() { edgectl -j status | python3 -c 'import datetime, json, sys; print(int(datetime.datetime.fromisoformat(json.load(sys.stdin)["connectd"]["clock_floor"].replace("Z", "+00:00")).timestamp()))'; }

if [ "$1" = 1 ]; then
	systemd-sysusers && systemd-tmpfiles --create edgeward.conf
	printf '[hub]\nurl = wss://127.0.0.1:8443/api/executors/connect\nca-file = /etc/edgeward/ca.pem\n' >/etc/edgeward/edgeward.conf
	: >/etc/edgeward/ca.pem
	systemctl enable --now edgeward-account.path edgeward-privhelper edgeward-workerd 2>/dev/null
	ok "the clock is before the agent was built" test "$(date +%s)" -lt "$(stat -c %Y /usr/lib/edgeward/connectd)"
	echo "clock: $(date -u +%F), hardware: $(cat /sys/class/rtc/rtc0/date 2>/dev/null)"
	# For now: a CA that is there, so that connectd starts without a hub.
	date -u -s "2026-12-01 00:00:00" >/dev/null
	start_hub
	cp /var/lib/edgehub/ca.pem /etc/edgeward/ca.pem && chmod 644 /etc/edgeward/ca.pem
	date -u -s "1970-01-01 12:00:00" >/dev/null # not less than the uptime: the kernel refuses that
	systemctl enable --now edgeward-connectd 2>/dev/null
	truth "not enrolled, and the clock is told" "n['link'] == 'unenrolled' and w['up'] and $BEFORE"
	date -u -s "2026-12-01 00:10:00" >/dev/null
	edgehub token create --name vm | edgectl enroll --token-file - >/tmp/enroll.out 2>&1
	ok "enrolled when the time is right" grep -q "enrolled as" /tmp/enroll.out
	truth "connected, the clock is right" 'd["healthy"] and not n["clock_implausible"]'
	ok "work runs" is "$(hub run vm --workdir one -- echo one 2>/dev/null)" one
	date -u -s "1970-01-01 13:00:00" >/dev/null
	systemctl restart edgeward-connectd
	truth "a start in 1970: connected by the saved time" "n['link'] == 'connected' and n['cause'] == 'clock-implausible' and $BEFORE"
	date -u -s "2026-12-01 00:20:00" >/dev/null
	truth "all is well when the time is set" 'd["healthy"] and n["cause"] == ""'
	find /var/lib/edgeward/connectd /var/lib/edgeward/workerd -type f \( -name 'cred*' -o -name '*.json' \) -exec sha256sum {} + | sort >/var/lib/state-before
	[ $failed != 0 ] || touch /again
	exit $failed
fi

echo "clock: $(date -u +%F), hardware: $(cat /sys/class/rtc/rtc0/date 2>/dev/null)"
ok "the clock is in the past again" test "$(date +%s)" -lt "$(stat -c %Y /usr/lib/edgeward/connectd)"
for unit in privhelper connectd workerd; do ok "$unit runs" until_ok 20 systemctl -q is-active edgeward-$unit; done
truth "no hub, the clock told" "not d['healthy'] and n['up'] and w['up'] and n['link'] != 'connected' and n['cause'] != '' and $BEFORE"
start_hub
truth "connected by the saved time, the clock is the trouble" "n['link'] == 'connected' and n['cause'] == 'clock-implausible' and w['up'] and $BEFORE"
ok "work runs" is "$(hub run vm --workdir two -- echo two 2>/dev/null)" two
ok "identity is untouched" sha256sum --quiet -c /var/lib/state-before
date -u -s "@$(($(floor) + 600))" >/dev/null
truth "all is well when the time is set" 'd["healthy"] and n["link"] == "connected" and not n["clock_implausible"] and n["cause"] == ""'
ok "no filter was hit" bash -c '! journalctl -b --no-pager | grep -E "status=31/SYS|SIGSYS|audit.*type=1326"'
exit $failed
