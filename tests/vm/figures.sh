#!/bin/bash
# The figures of performance.md that belong to the installed package: P9, P10, P15, P18, P19, and what it writes to disk when idle. Runs in
# the container of tests/vm/nspawn with the packages in /debs; `packaging/figures` builds them and prints what this says.
. /payload/lib.sh
SECONDS_IDLE=${SECONDS_IDLE:-60}
row() { printf 'figure: %-4s %-44s %10s   gate %s\n' "$1" "$2" "$3" "$4"; }
healthy() { until_ok "$1" status_is 0 || { echo "FAILED: not connected"; exit 1; }; }
pids() { echo "$(main_pid connectd) $(main_pid privhelper) $(main_pid workerd) $(pgrep -x workerd)"; }
total() { local n=0 v; for v; do n=$((n + v)); done; echo $n; }
smaps() { total $(for p in $(pids); do sed -n "s/^$1: *\([0-9]*\) kB/\1/p" "/proc/$p/smaps_rollup"; done); }
switches() { total $(for p in $(pids); do sed -n 's/^.*voluntary_ctxt_switches:[[:space:]]*//p' "/proc/$p/task"/*/status; done); }
written() { total $(for p in $(pids); do sed -n 's/^write_bytes: //p' "/proc/$p/io"; done); }
mib() { awk "BEGIN { printf \"%.2f\", $1 / 1024 }"; }
now() { date +%s%N; }
network_up() {
	ip netns add hub && ip link add up0 type veth peer name eth0 netns hub && ip address add 10.9.0.2/24 dev up0 && ip link set up0 up &&
	    ip -n hub address add 10.9.0.1/24 dev eth0 && ip -n hub link set lo up && ip -n hub link set eth0 up
}
connected_ms() { # from $1, in ns, until status says connected, in ms
	until status_is 0; do sleep 0.005; done
	echo $((($(now) - $1) / 1000000))
}
median() { sort -n | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }

rm -f /usr/sbin/policy-rc.d
network_up
mkdir -p /etc/systemd/system/edgehub.service.d
printf '[Service]\nNetworkNamespacePath=/run/netns/hub\nExecStart=\nExecStart=/usr/bin/edgehub serve -d /var/lib/edgehub -l 10.9.0.1:8443 -n 10.9.0.1\n' \
    >/etc/systemd/system/edgehub.service.d/own.conf
dpkg -i /debs/*.deb >/dev/null 2>&1 || { echo "FAILED: dpkg -i"; exit 1; }
# On a disk, as on a device: unchanged pages of the container's tmpfs would all count as dirty.
cp -a /usr/lib/edgeward /results/lib && mount --bind /results/lib /usr/lib/edgeward && sync
until_ok 10 edgehub devices
cp /var/lib/edgehub/ca.pem /etc/edgeward/hub-ca.pem && chmod 644 /etc/edgeward/hub-ca.pem
printf '[hub]\nurl = wss://10.9.0.1:8443/api/executors/connect\nca-file = /etc/edgeward/hub-ca.pem\n' >/etc/edgeward/edgeward.conf
systemctl restart edgeward-connectd
edgehub token create --name fig | edgectl enroll --token-file - >/dev/null
healthy 20

# The programs of a release: what a device runs. netprobe (for edgectl doctor alone) and run-foreground (where there is no systemd) come beside them.
size_of() { stat -L -c %s $(for p in "$@"; do echo "/usr/lib/edgeward/$p"; done); }
binaries=$(total $(size_of connectd workerd launcher privhelper privupgrade privtrial privaccount edgectl))
row P10 "eight programs of a release, stripped, MB" "$(awk "BEGIN { printf \"%.2f\", $binaries / 1e6 }")" "<= 1.5"
row P10 "  netprobe and run-foreground beside them, MB" "$(awk "BEGIN { printf \"%.2f\", $(total $(size_of netprobe run-foreground)) / 1e6 }")" "-"

starts=$(for i in 1 2 3 4 5; do
	systemctl stop edgeward-connectd edgeward-workerd edgeward-privhelper
	t=$(now); systemctl start --no-block edgeward-privhelper edgeward-workerd edgeward-connectd; connected_ms "$t"
done)
row P18 "start of the units to connected, ms, median of 5" "$(echo "$starts" | median)" "<= 300"
row P18 "  least, most; what else ran: load average" "$(echo "$starts" | sort -n | sed -n '1p;$p' | tr '\n' ' '); $(cut -d' ' -f1 /proc/loadavg)" "-"

sleep 10
row P9 "idle PSS of all four processes, MiB" "$(mib "$(smaps Pss)")" "<= 6"
row P9 "idle private dirty, MiB" "$(mib "$(smaps Private_Dirty)")" "<= 2.5"
row P9 "  connectd privhelper launcher workerd, kB" "$(for p in $(pids); do sed -n 's/^Private_Dirty: *\([0-9]*\) kB/\1/p' "/proc/$p/smaps_rollup"; done | tr '\n' ' ')" "-"
before=$(switches) disk=$(written)
sleep "$SECONDS_IDLE"
row P15 "idle context switches a second" "$(awk "BEGIN { printf \"%.2f\", ($(switches) - $before) / $SECONDS_IDLE }")" "<= 0.3"
row disk "idle, bytes written to disk an hour" "$((($(written) - disk) * 3600 / SECONDS_IDLE))" "-"

# The link: without a word (the far end vanishes and comes back), and with an address event.
ip -n hub route add blackhole 10.9.0.2/32
until_ok 120 status_is 3
sleep 30
t=$(now); ip -n hub route del blackhole 10.9.0.2/32
row P19 "link back to connected, no event, s" "$(awk "BEGIN { printf \"%.2f\", $(connected_ms "$t") / 1000 }")" "<= 12"
ip address del 10.9.0.2/24 dev up0
until_ok 120 status_is 3
sleep 20
t=$(now); ip address add 10.9.0.2/24 dev up0
row P19 "link back to connected, address event, s" "$(awk "BEGIN { printf \"%.2f\", $(connected_ms "$t") / 1000 }")" "<= 2"
exit 0
