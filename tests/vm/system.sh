#!/bin/bash
# What only a whole machine shows: the units under Debian's own kernel and systemd, real controllers, a reboot. Two boots.
. /payload/lib.sh
if [ "$1" = 1 ]; then
	echo "kernel $(uname -r), $(systemctl --version | head -1), Landlock as the kernel says: $(dmesg | grep -c 'landlock: Up and running')"
	ok "this is Debian 12's kernel" bash -c 'uname -r | grep -q "^6\.1\."'
	/payload/units.sh || failed=1
	systemctl start edgeward-privhelper edgeward-workerd edgeward-connectd
	ok "started again" until_ok 20 status_is 0
	/payload/limits.sh || failed=1
	# What is on the device must be there after the next boot: its credential, and a run that will be lost by it.
	edgehub run vm --workdir lost --detach -- sleep 100000 >/var/lib/lost-handle
	ok "a run that will not see its end" until_ok 10 pgrep -f '^sleep 100000'
	# Output that the hub had not got when the machine went down comes after the next boot, from the spool.
	sed -i 's/^\[link\]/[work]\nspool = 8M\n&/' /etc/edgeward/edgeward.conf
	systemctl reload edgeward-workerd
	until_ok 20 status_is 0
	edgehub run vm --workdir tell --detach -- sh -c 'i=0; while [ $i -lt 100000 ]; do echo "line $i"; i=$((i+1)); sleep 0.05; done' >/var/lib/told-handle
	until_ok 20 sh -c 'edgehub logs $(cat /var/lib/told-handle) | grep -q "line 5$"'
	systemctl stop test-hub
	sleep 8
	# the last whole line that the device has by now
	edgectl logs "$(cat /var/lib/told-handle)" | grep ^line | tail -n 2 | sed -n '1s/line //p' >/var/lib/told-line
	ok "a run that goes on telling while the hub is away" test "$(cat /var/lib/told-line)" -gt 20
	sleep 8
	ok "no process outside the units holds the device's users" is \
	    "$(ps -o unit= -u edgeward-net,edgeward-work | sort -u | tr -d ' ' | tr '\n' ' ')" "edgeward-connectd.service edgeward-workerd.service "
	ok "no filter was hit" bash -c '! journalctl -b --no-pager | grep -E "status=31/SYS|SIGSYS|audit.*type=1326"'
	[ $failed != 0 ] || touch /again
	exit $failed
fi

# The second boot: everything comes by itself, the hub last.
for unit in privhelper connectd workerd; do ok "after a reboot: $unit runs" until_ok 10 systemctl -q is-active edgeward-$unit; done
start_hub
ok "the device is back, enrolled" until_ok 40 status_is 0
h=$(cat /var/lib/lost-handle)
ok "the run that the reboot ended is told as lost" until_ok 20 bash -c "edgehub -j runs vm | tr '{' '\n' | grep '\"$h\"' | grep -q '\"outcome\": *\"lost\"'"
h=$(cat /var/lib/told-handle) n=$(($(cat /var/lib/told-line) + 1))
ok "and so is the other" until_ok 20 bash -c "edgehub -j runs vm | tr '{' '\n' | grep '\"$h\"' | grep -q '\"outcome\": *\"lost\"'"
edgehub logs "$h" | grep ^line | head -n "$n" >/tmp/told
seq 0 $((n - 1)) | sed 's/^/line /' >/tmp/told.want
ok "what it had told while the hub was away has come" cmp /tmp/told /tmp/told.want
edgehub logs verify "$h" >/tmp/verify 2>&1
ok "and its log is not called whole" is $? 3
edgehub run vm --workdir one -- sh -c 'echo back' 2>/tmp/back.err >/tmp/back.out
ok "work runs again" is "$(cat /tmp/back.out)" back
ok "no filter was hit" bash -c '! journalctl -b --no-pager | grep -E "status=31/SYS|SIGSYS|audit.*type=1326"'
exit $failed
