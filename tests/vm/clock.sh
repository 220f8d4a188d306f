#!/bin/bash
# A machine without a battery for its clock: each boot begins in January 1970 (tests/vm/qemu sets the RTC so), and systemd moves that on to the
# date of its own build at most. Two boots; each part ends with what `edgectl status -j` says, which must be the truth (B26, B28).
. /payload/lib.sh

# truth WHAT CONDITION...: status says so, soon.
truth() {
	local what=$1; shift
	until_ok 40 status_has "$@" || status_lines
	ok "status -j: $what" status_has "$@"
}
BEFORE=(connectd.clock_implausible=true "connectd.clock_floor>2025")
WELL=(healthy=true connectd.link=connected connectd.cause= connectd.clock_implausible=false workerd.up=true)
hub() { edgehub -d /var/lib/edgehub "$@"; }
floor() { date -d "$(status_lines | sed -n 's/^connectd.clock_floor=//p')" +%s; }

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
	truth "not enrolled, and the clock is told" connectd.link=unenrolled workerd.up=true "${BEFORE[@]}"
	date -u -s "2026-12-01 00:10:00" >/dev/null
	edgehub token create --name vm | edgectl enroll --token-file - >/tmp/enroll.out 2>&1
	ok "enrolled when the time is right" grep -q "enrolled as" /tmp/enroll.out
	truth "connected, the clock is right" "${WELL[@]}"
	ok "work runs" is "$(hub run vm --workdir one -- echo one 2>/dev/null)" one
	date -u -s "1970-01-01 13:00:00" >/dev/null
	systemctl restart edgeward-connectd
	truth "a start in 1970: connected by the saved time" connectd.link=connected connectd.cause=clock-implausible "${BEFORE[@]}"
	date -u -s "2026-12-01 00:20:00" >/dev/null
	truth "all is well when the time is set" "${WELL[@]}"
	find /var/lib/edgeward/connectd /var/lib/edgeward/workerd -type f \( -name 'cred*' -o -name '*.json' \) -exec sha256sum {} + | sort >/var/lib/state-before
	[ $failed != 0 ] || touch /again
	exit $failed
fi

echo "clock: $(date -u +%F), hardware: $(cat /sys/class/rtc/rtc0/date 2>/dev/null)"
ok "the clock is in the past again" test "$(date +%s)" -lt "$(stat -c %Y /usr/lib/edgeward/connectd)"
for unit in privhelper connectd workerd; do ok "$unit runs" until_ok 20 systemctl -q is-active edgeward-$unit; done
truth "no hub, the clock told" healthy=false connectd.up=true workerd.up=true connectd.link!=connected connectd.cause!= "${BEFORE[@]}"
start_hub
truth "connected by the saved time, the clock is the trouble" connectd.link=connected connectd.cause=clock-implausible workerd.up=true "${BEFORE[@]}"
ok "work runs" is "$(hub run vm --workdir two -- echo two 2>/dev/null)" two
ok "identity is untouched" sha256sum --quiet -c /var/lib/state-before
date -u -s "@$(($(floor) + 600))" >/dev/null
truth "all is well when the time is set" "${WELL[@]}"
ok "no filter was hit" bash -c '! journalctl -b --no-pager | grep -E "status=31/SYS|SIGSYS|audit.*type=1326"'
exit $failed
