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
edgehub run vm --workdir one -- sh -c 'echo back' >/tmp/back.out 2>&1
ok "work runs again" is "$(cat /tmp/back.out)" back
ok "no filter was hit" bash -c '! journalctl -b --no-pager | grep -E "status=31/SYS|SIGSYS|audit.*type=1326"'
exit $failed
