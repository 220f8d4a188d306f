#!/bin/bash
# privhelper's USB verbs on a real vhci_hcd: attach, use, detach, full hubs, a crash, and what a device that lies about itself gets.
# tests/vm/usbdrv.c stands in for workerd and for the devices.
# B112 (more devices than one controller has ports), B115 (a port that outlives a crash), and section 5 of the design: a forged keyboard stays shut.
. /payload/lib.sh
VHCI=/sys/devices/platform/vhci_hcd.0
systemd-sysusers && systemd-tmpfiles --create edgeward.conf
modprobe -a vhci-hcd usb-storage sd_mod usbhid cdc_ether cdc_subset ati_remote2
# Sixteen root hubs come up, one after the other, in the one queue in which devices are enumerated: the first device would wait for them.
udevadm settle
[ -e $VHCI/attach ] || { skip "USB" "no vhci_hcd here"; exit 0; }
mkdir -p /etc/systemd/system/edgeward-privhelper.service.d
# The classes are given by hand, so that this tests privhelper and not who reads policy.conf.
cat >/etc/systemd/system/edgeward-privhelper.service.d/usb.conf <<UNIT
[Service]
ExecStart=
ExecStart=/bin/sh -c 'exec /usr/lib/edgeward/privhelper -u "ff 07 08" -P "65000 4 65000" -N "\$\$(id -u edgeward-net)" -W "\$\$(id -u edgeward-work)"'
UNIT
systemctl daemon-reload
systemctl start edgeward-privhelper
ok "privhelper runs" systemctl -q is-active edgeward-privhelper
pid=$(main_pid privhelper)
ok "with CAP_NET_ADMIN, CAP_MKNOD and CAP_CHOWN alone" is "$(field "$pid" CapPrm) $(field "$pid" CapEff)" "0000000008001001 0000000008001001"
ok "its two threads are filtered" is "$(cat /proc/"$pid"/task/*/status | sed -n 's/^Seccomp:[[:space:]]*//p' | tr '\n' ' ')" "2 2 "
ok "its ledger is root's alone" is "$(mode /run/edgeward/privhelper) $(mode /run/edgeward/privhelper/usb)" "root:root 700 root:root 600"
ok "its record is for operators to read" is "$(mode /var/lib/edgeward/privhelper) $(mode /var/lib/edgeward/privhelper/audit)" "root:edgeward 2750 root:edgeward 640"

useradd -M -G edgeward op
start_driver() {
	coproc DRV { exec setpriv --reuid edgeward-work --regid edgeward-work --init-groups --inh-caps=-all /usr/lib/edgeward/usbdrv; }
	driver=$DRV_PID in=${DRV[1]} out=${DRV[0]}
	expect '^ready' 10
}
begun=
expect() { # expect REGEX SECONDS: the next line that fits goes to $got
	local end=$((SECONDS + $2 * SLOW))
	while [ $SECONDS -lt $end ]; do
		got=
		# What came of a line before the time was over is kept for the next try.
		if ! read -r -t 1 -u "$out" got; then begun+=$got; continue; fi
		got=$begun$got begun=
		if [[ $got =~ $1 ]]; then return 0; fi
		echo "driver says: $got"
	done
	got=nothing; return 1
}
ask() { echo "$1" >&"$in"; }
used() { cat $VHCI/status* | awk '$3 == "006"' | wc -l; }
taken() { cat $VHCI/status* | awk '$3 == "006" || $3 == "005"' | wc -l; }
disk() { lsblk -dno NAME,MODEL | awk '/TestDisk/ { print "/dev/" $1; exit }'; }
first_sector() { head -c 512 "$(disk)" | grep -aq '^sector 0'; }

start_driver
ask "attach disk 3"; expect '^(attached|refused)' 5
ok "a disk is attached" grep -q '^attached 0$' <<<"$got"
port=${got#attached }
expect '^device' 20
ok "and authorized" grep -qE "^device $port ready [0-9]+ [0-9]+ 1 1 100$" <<<"$got"
read -r _ _ _ bus dev _ <<<"$got"
ok "where it was said to be" test -e "$(printf /dev/bus/usb/%03d/%03d "$bus" "$dev")"
for hub in $VHCI/usb[0-9]*; do
	ok "nothing else is let in by itself: $(basename "$hub")" is "$(cat "$hub/authorized_default" "$hub/interface_authorized_default" | tr '\n' ' ')" "0 0 "
done
until_ok 20 bash -c "lsblk -dno MODEL | grep -q TestDisk"
udevadm settle
d=$(disk)
ok "a disk is there" test -b "$d"
ok "its first sector can be read" bash -c "head -c 512 '$d' | grep -aq '^sector 0 of the test disk'"
ok "and its last" bash -c "dd if='$d' bs=512 skip=4095 count=1 2>/dev/null | grep -aq '^sector 4095 of the test disk'"
ok "what is written is read back" bash -c "echo written | dd of='$d' bs=512 seek=7 conv=sync,fsync 2>/dev/null; dd if='$d' bs=512 skip=7 count=1 iflag=direct 2>/dev/null | grep -aq '^written'"
ask "detach $port"; expect '^detached' 5
ok "it is detached" is "$got" "detached 0"
ok "its port is free, its disk gone" until_ok 10 bash -c "! lsblk -dno MODEL | grep -q TestDisk && ! grep -q ' 006 ' $VHCI/status"
ask "detach $port"; expect '^detached' 5
ok "again is no error" is "$got" "detached 0"

# What the host must not be given.
ask "attach keyboard 2"; expect '^attached' 5; expect '^device' 20
ok "a keyboard stays shut" grep -qE '^device [0-9]+ unauthorized [0-9]+ [0-9]+ 1 0 03$' <<<"$got"
ok "no input device came of it" bash -c "! grep -qi edge /proc/bus/input/devices"
ask "detach $(cut -d' ' -f2 <<<"$got")"; expect '^detached' 5
ask "attach net 3"; expect '^attached' 5; expect '^device' 20
ok "a network adapter stays shut" grep -qE '^device [0-9]+ unauthorized [0-9]+ [0-9]+ 2 0 02$' <<<"$got"
ask "detach $(cut -d' ' -f2 <<<"$got")"; expect '^detached' 5
ask "attach both 3"; expect '^attached' 5; expect '^device' 20
ok "of a disk with a keyboard only the disk is let in" grep -qE '^device [0-9]+ ready [0-9]+ [0-9]+ 2 1 03$' <<<"$got"
until_ok 20 bash -c "lsblk -dno MODEL | grep -q TestDisk"
ok "no input device came of that either" bash -c "! grep -qi edge /proc/bus/input/devices"
ask "detach $(cut -d' ' -f2 <<<"$got")"; expect '^detached' 5
# A driver that goes by vendor and product takes an interface of any class that is let in.
for kind in odd printer; do
	dmesg -C
	ask "attach $kind 3"; expect '^attached' 5; expect '^device' 20
	ok "$kind: it is let in" grep -qE '^device [0-9]+ ready [0-9]+ [0-9]+ 1 1 100$' <<<"$got"
	ok "$kind: a driver makes a network adapter of it" until_ok 20 bash -c "dmesg | grep -q \"register 'cdc_subset'\""
	ok "$kind: which is shut again" until_ok 20 bash -c "! ls -l /sys/class/net | grep -q vhci_hcd"
	ask "detach $(cut -d' ' -f2 <<<"$got")"; expect '^detached' 5
done
ask "attach remote 3"; expect '^attached' 5; expect '^device' 20
ok "a remote control of class ff is let in" grep -qE '^device [0-9]+ ready [0-9]+ [0-9]+ 2 2 100$' <<<"$got"
ok "a driver makes an input device of it" until_ok 20 bash -c "dmesg | grep -q 'input: .*vhci_hcd'"
ok "which is shut again" until_ok 20 bash -c "! ls -l /sys/class/input | grep -q vhci_hcd"
ok "with the whole device" until_ok 20 bash -c "[ \"\$(cat $VHCI/usb*/*-[1-9]/authorized)\" = 0 ]"
ask "detach $(cut -d' ' -f2 <<<"$got")"; expect '^detached' 5
ask "attach junk 3"; expect '^attached' 5; expect '^device' 20
ok "descriptors that do not add up stay shut" grep -qE '^device [0-9]+ unauthorized' <<<"$got"
ask "detach $(cut -d' ' -f2 <<<"$got")"; expect '^detached' 5
ask "attach disk 4"; expect '^(ended|attached|refused)' 5
ok "a speed that there is not costs the channel" is "$got" ended
kill "$driver" 2>/dev/null; wait "$driver" 2>/dev/null

# Each change of owner is a line of the record: a workerd that was taken over cannot fill it.
until_ok 20 is "$(taken)" 0
sleep 1.5
start_driver
ask "attach disk 3"; expect '^attached' 5; expect '^device' 20
ask "grants $(cut -d' ' -f2 <<<"$got") 1000"; expect '^(granted|ended)' 60
ok "runners by turns, a thousand times: most are not granted ($got)" test "${got#granted }" -gt 1 -a "${got#granted }" -lt 700
kill "$driver" 2>/dev/null; wait "$driver" 2>/dev/null

# The one that is too many, and one that belongs to somebody else. Refusal after a broken record: 1 s.
until_ok 20 is "$(taken)" 0
sleep 1.5
start_driver
total=$(cat $VHCI/status* | grep -c '^hs')
ask "attach disk 3"; expect '^attached' 5; expect '^device' 20
theirs=$(cut -d' ' -f2 <<<"$got")
ok "one device before the crowd" is "$(used)" 1
n=1; fails=
while [ $n -lt "$total" ] && [ $n -lt 30 ]; do
	ask "attach slow 3"; expect '^(attached|refused)' 10
	# The runners by turns have used up what may be asked for at once: one each 250 ms since.
	for try in $(seq 20); do [[ $got == 'refused EAGAIN'* ]] || break; sleep 0.5; ask "attach slow 3"; expect '^(attached|refused)' 10; done
	[[ $got == attached* ]] || fails=$got
	n=$((n + 1))
done
echo "ports: $total high speed, asked for $n"
ok "each of $n ports can be used" is "$fails" ""
ask "attach disk 5"; expect '^(attached|refused)' 10
ok "a super-speed one finds its place beside them" grep -q ^attached <<<"$got"
ok "the first one is undisturbed" until_ok 30 first_sector	# the kernel looks at a disk some time after the device is ready

# kill -9: the next one frees what was ours, and nothing else.
foreign=$(cat $VHCI/status* | awk '$1 == "ss" && $3 == "004" { print $2 + 0; exit }')
/usr/lib/edgeward/usbdrv foreign "$foreign" & foreigner=$!
ok "somebody else's device" until_ok 20 bash -c "cat $VHCI/status* | awk '\$2 + 0 == $foreign && \$3 == \"006\"' | grep -q ."
old=$(main_pid privhelper)
kill -9 "$old"
ok "started again" until_ok 10 bash -c "p=\$(systemctl show -p MainPID --value edgeward-privhelper); [ \$p != 0 ] && [ \$p != $old ]"
ok "all our ports are free" until_ok 40 bash -c "[ \$(cat $VHCI/status* | awk '\$3 != \"004\"' | grep -vc sta) = 1 ]"
ok "the other one's is not" bash -c "cat $VHCI/status* | awk '\$2 + 0 == $foreign && \$3 == \"006\"' | grep -q ."
kill $foreigner "$driver" 2>/dev/null; wait $foreigner "$driver" 2>/dev/null

# Our end closed: the kernel frees the port, whoever died.
start_driver
ask "attach disk 3"; expect '^attached' 5; expect '^device' 20
ask "drop $(cut -d' ' -f2 <<<"$got")"
ok "a device whose far side ends leaves its port" until_ok 10 bash -c "[ \$(cat $VHCI/status* | awk '\$3 == \"006\"' | wc -l) = 0 ]"
kill "$driver" 2>/dev/null; wait "$driver" 2>/dev/null

# connectd may ask for nothing.
as_net() { setpriv --reuid edgeward-net --regid edgeward-net --init-groups /usr/lib/edgeward/usbdrv "$@"; }
as_net </dev/null >/tmp/net.out 2>&1
ok "the network's uid cannot say that it is workerd" grep -q "no HELLO" /tmp/net.out
sleep 1.5
{ echo "attach disk 3"; sleep 2; } | as_net /run/edgeward/introduce.sock connectd >/tmp/net.out 2>&1
ok "and as connectd has nothing to ask for" is "$(cat /tmp/net.out | tr '\n' ' ')" "ready ended closed "
ok "all is on record" edgectl audit verify
edgectl audit | tail -5
ok "members of group edgeward may read it" setpriv --reuid op --regid op --init-groups edgectl audit verify
ok "a line that was changed is noticed" bash -c "sed 's/result=ok/result=no/' /var/lib/edgeward/privhelper/audit >/tmp/changed; ! edgectl audit verify -f /tmp/changed"
ok "no filter was hit" bash -c '! journalctl -b --no-pager | grep -E "status=31/SYS|SIGSYS|audit.*type=1326"'
exit $failed
