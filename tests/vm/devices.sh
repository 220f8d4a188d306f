#!/bin/bash
# What a hub lends, all the way, on a real kernel. Ethernet segments at the end. USB devices: an emulated disk and a serial adapter of this machine, exported by Debian's usbipd,
# forwarded by edgehub, attached by privhelper, used by a run that sees nothing else. In place of the far machine stands this one.
# Point 2 of what a hub may lend: see policy.conf(5), section devices. Last, how fast that is, beside `usbip attach` of the same device.
. /payload/lib.sh
VHCI=/sys/devices/platform/vhci_hcd.0
systemd-sysusers && systemd-tmpfiles --create edgeward.conf
modprobe -a vhci-hcd usbip-host usb-storage sd_mod ftdi_sio usbserial xhci-pci
[ -e $VHCI/attach ] || { skip "USB" "no vhci_hcd here"; exit 0; }
busid_of() { local d; for d in /sys/bus/usb/devices/*; do [ "$(cat "$d/idVendor" 2>/dev/null)" = "$1" ] && basename "$d"; done | head -1; }
udevadm settle
until_ok 20 bash -c '[ -n "$(lsblk -dno NAME,VENDOR | grep QEMU)" ]'
disk=$(busid_of 46f4) serial=$(busid_of 0403)
ok "the machine has a disk and a serial adapter on USB" test -n "$disk" -a -n "$serial"
udevadm settle
real=/dev/$(lsblk -dno NAME,VENDOR | awk '/QEMU/ { print $1; exit }')
size=$(blockdev --getsize64 "$real")
sum=$(head -c "$size" "$real" | sha256sum | cut -c1-64)
echo "disk $disk, $size bytes, $sum; serial $serial"

printf '[hub]\nurl = wss://127.0.0.1:8443/api/executors/connect\nca-file = /etc/edgeward/ca.pem\n[link]\nretry-min = 100ms\n' >/etc/edgeward/edgeward.conf
printf '[work]\nnetwork = none\n[devices]\nusb = yes\nl2 = yes\n' >/etc/edgeward/policy.conf
start_hub
cp /var/lib/edgehub/ca.pem /etc/edgeward/ca.pem
systemctl enable --now edgeward-account.path edgeward-privhelper edgeward-workerd edgeward-connectd 2>/dev/null
ok "ids for workloads are there" until_ok 30 test -s /etc/edgeward/pool
edgehub token create --name vm | edgectl enroll --token-file - >/tmp/enroll.out 2>&1
ok "all is well" until_ok 20 status_is 0
lends() { edgectl -j devices | grep -q '"usb": *true'; }
ok "devices can be lent" until_ok 20 lends
grants() { tr '\0' ' ' <"/proc/$(main_pid privhelper)/cmdline" | grep -q -- "-P $(tr '\n' ' ' </etc/edgeward/pool | sed 's/ $//')"; }
ok "privhelper knows the ids" until_ok 30 grants
pid=$(main_pid privhelper)
systemctl start edgeward-account; sleep 2
ok "a request that changes no id leaves it alone" is "$(main_pid privhelper)" "$pid"
ok "and can make nodes" is "$(field "$(main_pid privhelper)" CapPrm)" 0000000008001001
ok "the hub hears of it" until_ok 20 bash -c 'edgehub -j devices | grep -q "\"usb_ports_free\""'

usbip bind -b "$disk" && usbip bind -b "$serial"
usbipd -D -4 -P/run/usbipd.pid
until_ok 10 bash -c "usbip list -r 127.0.0.1 | grep -q '$disk'"
is_used() { [ "$(used)" = "$1" ]; }
used() { cat $VHCI/status* | awk '$3 == "006" || $3 == "005"' | wc -l; }
exported() { [ "$(cat "/sys/bus/usb/devices/$1/usbip_status" 2>/dev/null)" = 1 ]; }	# 1 free, 2 in use

# The run was there before the device: what comes later appears in its /dev.
cat >/tmp/reader <<'SH'
for i in $(seq 3000); do for d in /dev/edgeward/sd?; do [ -b "$d" ] && break 2; done; sleep 0.1; done
echo "node $d"
echo "sum $(head -c SIZE "$d" | sha256sum | cut -c1-64)"
for i in $(seq 3000); do for t in /dev/edgeward/ttyUSB*; do [ -c "$t" ] && break 2; done; sleep 0.1; done
echo "tty $t"
# Not by this shell: it leads its session, the terminal would be its own, and its end a SIGHUP.
(echo "hello from the run" >"$t")
echo "sees $(ls /dev/edgeward | tr '\n' ' ')"
echo "dev $(ls /dev | tr '\n' ' ')"
ls -ln /dev/edgeward/sd? | awk '{ print "mode", $1, $3 }'
echo "usbfs $(ls -R /dev/bus/usb | grep -c '^[0-9][0-9][0-9]$')"
echo done
exec sleep 100000
SH
sed -i "s/SIZE/$size/" /tmp/reader
h=$(edgehub run vm --workdir usb --detach -- sh -c "$(cat /tmp/reader)")
other=$(edgehub run vm --workdir other --detach -- sh -c 'for i in $(seq 1000); do ls /dev/edgeward; sleep 0.5; done')
line() { edgehub logs "$h" 2>/dev/null | sed -n "s/^$1 //p" | head -1; }
systemd-run --quiet --unit=test-disk edgehub -j usb forward vm --retry 0 --busid "$disk" --for "$h" --name disk --match 46f4:0001
ok "the disk is opened" until_ok 60 bash -c 'edgehub -j usb list | grep -q "\"opened\": *true"'
ok "its node is in the run's /dev" until_ok 60 bash -c "edgehub logs $h | grep -q '^node /dev/edgeward/sd'"
ok "the run reads all of it" until_ok 120 bash -c "edgehub logs $h | grep -q '^sum '"
ok "and it is the disk" is "$(line sum)" "$sum"
systemd-run --quiet --unit=test-serial edgehub usb forward vm --retry 0 --busid "$serial" --for "$h" --name serial
ok "the serial adapter, too" until_ok 60 bash -c "edgehub logs $h | grep -q '^done'"
ok "what the run wrote came out of it" until_ok 20 grep -q "hello from the run" /results/serial.txt
ok "the run sees its devices and no other" is "$(line sees)" "bus $(basename "$(line node)") $(basename "$(line tty)") "
ok "no other device of the machine" bash -c "! edgehub logs $h | sed -n 's/^dev //p' | tr ' ' '\n' | grep -E '^(sd|vd|ttyS|mem|kmsg)'"
slot=$(ls -d /dev/edgeward/*/sd? | cut -d/ -f4)
read -r first _ gid </etc/edgeward/pool
ok "the node is the run's alone" is "$(stat -c '%u:%g %a' /dev/edgeward/*/sd?)" "$((first + slot)):$gid 600"
ok "another run sees nothing of it" is "$(edgehub logs "$other" | tr -d '\n')" ""
ok "udisks and the like are told to stay away" bash -c "udevadm info /dev/$(basename "$(line node)") | grep -q UDISKS_IGNORE=1"
edgectl devices
ok "edgectl shows both" is "$(edgectl devices | grep -c ready)" 2
ok "two ports are in use" is "$(used)" 2
ok "a device that is in use is refused" bash -c "! edgehub usb forward vm --retry 0 --busid $disk 2>/tmp/again; grep -q 'in use' /tmp/again"
# B114. Not listed as this machine's own either: the disk is on its real port, and on a virtual one.
edgehub harness list vm >/dev/null 2>&1	# asks for the inventory anew
told() { edgehub -j devices | grep -o '"vendor_id": *"[0-9a-f]*"' | grep -c "$1"; }
ok "two devices of vendor 46f4 are there, one is told" is "$(cat /sys/bus/usb/devices/*/idVendor | grep -c 46f4) $(told 46f4)" "2 1"
v=$(basename "$(ls -d $VHCI/usb*/*-1 | head -1)")
if usbip bind -b "$v" >/dev/null 2>&1; then
	ok "one that sits on a virtual port itself is refused" bash -c "! edgehub usb forward vm --retry 0 --busid $v 2>/tmp/loop; grep -q 'virtual controller' /tmp/loop"
	usbip unbind -b "$v" >/dev/null 2>&1
else
	skip "one that sits on a virtual port itself is refused" "usbip bind refuses it before"
fi

# One end at a time.
systemctl stop test-serial
ok "Ctrl-C: its port is free, the other one's is not" until_ok 20 is_used 1
ok "and usbipd has it back" until_ok 20 exported "$serial"
ok "and its node is gone" bash -c '! ls /dev/edgeward/*/ttyUSB* 2>/dev/null'
edgehub signal "$h" KILL >/dev/null
ok "the run ends: so does the lease" until_ok 20 is_used 0
ok "and usbipd has the disk back" until_ok 20 exported "$disk"
ok "and no node is left" is "$(find /dev/edgeward -type b -o -type c | wc -l)" 0

# A link that goes silent during a transfer: both sides are free within 30 s.
h=$(edgehub run vm --workdir usb --detach -- sh -c 'while :; do for d in /dev/edgeward/sd?; do [ -b "$d" ] && { echo reading; dd if=$d of=/dev/null bs=64k iflag=direct; }; done; sleep 0.2; done')
systemd-run --quiet --unit=test-silent edgehub usb forward vm --retry 0 --busid "$disk" --for "$h"
ok "a transfer runs" until_ok 60 bash -c "edgehub logs $h | grep -q '^reading'"
systemctl kill -s STOP edgeward-connectd
began=$SECONDS
ok "silent link: usbipd has its device back" until_ok 12 exported "$disk"
systemctl kill -s CONT edgeward-connectd
ok "within 30 s: $((SECONDS - began)) s" test $((SECONDS - began)) -le 32
ok "and the port is free" until_ok 10 is_used 0
ok "connected again" until_ok 30 status_is 0
systemctl stop test-silent 2>/dev/null

# The device of that unit's command is there; else what the command said.
lent() {
	until_ok 60 bash -c "ls /dev/edgeward/*/sd? >/dev/null 2>&1 || ! systemctl -q is-active '$1'"
	ls /dev/edgeward/*/sd? >/dev/null 2>&1 || { journalctl --sync; journalctl -b -u "$1" -o cat --no-pager | tail -3; return 1; }
}
lend() { # lend UNIT HANDLE
	systemctl stop "$1" 2>/dev/null; systemctl reset-failed "$1" 2>/dev/null
	systemd-run --quiet --unit="$1" edgehub usb forward vm --retry 0 --busid "$disk" --for "$2"
	lent "$1"
}

# kill -9 of each process in turn: ports free, nodes gone, and the next attach works.
for who in workerd connectd privhelper; do
	ok "before kill -9 of $who: attached" lend test-kill "$h"
	case $who in workerd) kill -9 "$(pgrep -x workerd)" ;; *) kill -9 "$(main_pid $who)" ;; esac
	ok "kill -9 of $who: usbipd has its device back" until_ok 20 exported "$disk"
	ok "kill -9 of $who: no node is left" until_ok 20 bash -c '[ -z "$(find /dev/edgeward -type b -o -type c)" ]'
	ok "kill -9 of $who: the port is free" until_ok 20 is_used 0
	ok "kill -9 of $who: all is well again" until_ok 40 status_is 0
	ok "devices can be lent again" until_ok 20 lends
	systemctl stop test-kill 2>/dev/null
done
edgehub signal "$h" KILL >/dev/null

# Reading the disk through the whole chain, beside a direct attach to the same usbipd.
rate() { awk '/bytes/ { for (i = 1; i <= NF; i++) if ($i == "s,") printf "%.1f", $1 / $(i - 1) / 1e6 }'; }
h=$(edgehub run vm --workdir usb --detach -- sh -c 'for i in $(seq 3000); do for d in /dev/edgeward/sd?; do [ -b "$d" ] && break 2; done; sleep 0.1; done
	sleep 1; for i in 1 2 3; do dd if=$d of=/dev/null bs=256k iflag=direct 2>&1; done; echo done; sleep 1000')
ok "reading: its device is there" lend test-bench "$h"
until_ok 120 bash -c "edgehub logs $h | grep -q '^done'"
chain=$(edgehub logs "$h" | grep bytes | while read -r l; do echo "$l" | rate; echo; done | sort -n | tail -1)
systemctl stop test-bench
until_ok 20 is_used 0
edgehub signal "$h" KILL >/dev/null
systemctl stop edgeward-privhelper	# it would keep a foreign device shut
for hub in $VHCI/usb[0-9]*; do echo 1 >"$hub/authorized_default"; echo 1 >"$hub/interface_authorized_default"; done
until_ok 20 exported "$disk"
usbip attach -r 127.0.0.1 -b "$disk"
until_ok 30 bash -c '[ -n "$(lsblk -dno NAME,VENDOR | grep QEMU)" ]'
udevadm settle
d=/dev/$(lsblk -dno NAME,VENDOR | awk '/QEMU/ { print $1; exit }')
direct=$(for i in 1 2 3; do dd if="$d" of=/dev/null bs=256k iflag=direct 2>&1 | rate; echo; done | sort -n | tail -1)
usbip detach -p 0 2>/dev/null
echo "reading: through the chain $chain MB/s, usbip attach $direct MB/s, ratio $(awk "BEGIN { printf \"%.2f\", $chain / $direct }")"
# What of it is the cipher, once at each end, on this processor, which may be an emulated one.
cipher=$(openssl speed -elapsed -seconds 2 -bytes 16384 -evp aes-256-gcm 2>/dev/null | awk 'END { printf "%.1f", $2 / 1000 }')
echo "reading: the cipher alone $cipher MB/s; the direct read with it at both ends $(awk "BEGIN { printf \"%.1f\", 1 / (1 / $direct + 2 / $cipher) }") MB/s"
ok "reading: both were measured" test -n "$chain" -a -n "$direct"
systemctl start edgeward-privhelper
ok "all is well again" until_ok 40 status_is 0

# A segment: two namespaces, this one's interface in the hands of edgehub, the other's in a run.
modprobe tun
ip netns add op
ip -n op link set lo up
h=$(edgehub run vm --workdir l2 --detach -- iperf3 -s)
until_ok 30 bash -c "edgehub logs $h | grep -qi listening"
no_tap() { [ "$(ls /sys/class/net | grep -c ^ewt)" = 0 ]; }
segment() { # segment NAME ARGS...
	local name=$1; shift
	systemd-run --quiet --unit="test-$name" -p NetworkNamespacePath=/run/netns/op edgehub -j l2 forward vm --for "$h" --tap tap0 --address 10.9.0.2/24 "$@"
	until_ok 60 ip -n op link show tap0 || return 1
	ip -n op addr add 10.9.0.1/24 dev tap0; ip -n op link set tap0 up
	until_ok 60 ip netns exec op ping -c1 -W2 10.9.0.2
}
slowest() { # of five questions, each to the device and back through the hub, in ms
	local worst=0 t
	for _ in 1 2 3 4 5; do
		t=$(date +%s%N); edgehub usb forward vm --retry 0 --busid 9-9 >/dev/null 2>&1; edgectl status >/dev/null; t=$((($(date +%s%N) - t) / 1000000))
		[ $t -lt $worst ] || worst=$t
	done
	echo $worst
}
for offload in "" --offload; do
	ok "segment $offload: up, and pinged" segment "l2$offload" $offload
	ok "segment $offload: 20 of 20 pings of 1400 bytes" bash -c 'ip netns exec op ping -c20 -i0.05 -W10 -s1400 10.9.0.2 | grep -q " 20 received"'
	ok "segment $offload: iperf" bash -c 'ip netns exec op iperf3 -c 10.9.0.2 -n 8M >/tmp/iperf.out'
	grep receiver /tmp/iperf.out
	ok "segment $offload: every checksum was right" is "$(ip netns exec op awk '/^Tcp:/ { print $16 }' /proc/net/snmp | tail -1)" 0
	calm=$(slowest)
	ip netns exec op ping -f -c2000 -s1400 -W1 10.9.0.2 >/tmp/flood.out 2>&1 & flood=$!
	worst=$(slowest)
	kill $flood 2>/dev/null; wait $flood 2>/dev/null
	# Within a second each, or as slow as this machine is without the flood.
	ok "segment $offload: the link answers while it is flooded ($worst ms, $calm without)" test "$worst" -lt $((1000 * SLOW > 3 * calm ? 1000 * SLOW : 3 * calm))
	systemctl stop "test-l2$offload"
	ok "segment $offload: no interface is left" until_ok 20 bash -c '! ip -n op link show tap0 2>/dev/null && [ "$(ls /sys/class/net | grep -c ^ewt)" = 0 ]'
done
for who in workerd connectd privhelper; do
	ok "before kill -9 of $who: the segment is up" segment "l2-$who"
	case $who in workerd) kill -9 "$(pgrep -x workerd)" ;; *) kill -9 "$(main_pid $who)" ;; esac
	ok "kill -9 of $who: all is well again" until_ok 40 status_is 0
	systemctl stop "test-l2-$who" 2>/dev/null
	ok "kill -9 of $who: no interface is left" until_ok 20 no_tap
	until_ok 20 bash -c '! ip -n op link show tap0'
done
ok "all is on record" edgectl audit verify
ok "no filter was hit" bash -c '! journalctl -b --no-pager | grep -E "status=31/SYS|SIGSYS|audit.*type=1326"'
exit $failed
