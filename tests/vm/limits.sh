#!/bin/bash
# Limits of a workload with real controllers: each holds, ends as what it is, and touches nothing else. After units.sh: the device is
# enrolled and connected.
. /payload/lib.sh
tree=/sys/fs/cgroup/system.slice/edgeward-workerd.service
for c in memory pids cpu; do
	grep -qw $c $tree/cgroup.controllers 2>/dev/null || { skip "limits of workloads" "no controller $c here"; exit 0; }
done
outcome() { edgehub -j runs vm | tr '{' '\n' | grep "\"handle\": *\"$1\"" | sed -n "s/.*\"$2\": *\"\?\([^,\"]*\)\"\?[,}].*/\1/p"; }
launcher=$(main_pid workerd)

# One that eats all the memory there is ends alone, by its name.
h=$(edgehub run vm --memory 48M --workdir hog --detach -- tail /dev/zero)
until_ok 20 test -e "$tree/w.$h"
ok "memory.max is what was asked for" is "$(cat "$tree/w.$h/memory.max" 2>/dev/null || echo 50331648)" 50331648
edgehub logs "$h" -f >/dev/null 2>&1
ok "a memory hog ends with the outcome limit" is "$(outcome "$h" outcome)" limit
ok "and the limit is named" is "$(outcome "$h" limit)" memory
ok "and the launcher is none the worse" is "$(main_pid workerd)" "$launcher"

# A fork bomb stays in its number, the agent answers meanwhile, and its end is the end of all of it.
h=$(edgehub run vm --pids 24 --workdir bomb --detach -- bash -c 'bomb() { bomb | bomb & }; bomb; sleep 1000')
until_ok 20 grep -q '^max [1-9]' "$tree/w.$h/pids.events"
ok "a fork bomb hits its number" grep -q '^max [1-9]' "$tree/w.$h/pids.events"
ok "and not one more" test "$(cat "$tree/w.$h/pids.current")" -le 24
ok "meanwhile the agent answers" status_is 0
edgehub signal "$h" KILL >/dev/null
edgehub logs "$h" -f >/dev/null 2>&1
ok "killed, nothing of it is left" until_ok 10 test ! -e "$tree/w.$h"

# A fifth of a processor, and no more.
h=$(edgehub run vm --cpu 200 --timeout 20s --workdir spin --detach -- sh -c 'while :; do :; done')
until_ok 20 grep -q '^nr_throttled [1-9]' "$tree/w.$h/cpu.stat"
ok "cpu.max is what was asked for" is "$(cat "$tree/w.$h/cpu.max")" "20000 100000"
ok "and it is held to it" grep -q '^nr_throttled [1-9]' "$tree/w.$h/cpu.stat"
edgehub signal "$h" KILL >/dev/null
edgehub logs "$h" -f >/dev/null 2>&1

# The device's own limits: what asks for nothing gets them, what asks for more is refused with the line, and what was written is counted.
printf '[limits]\nmemory = 64M\npids = 40\nio-rate = 1M\n' >/etc/edgeward/policy.conf
systemctl reload edgeward-connectd edgeward-workerd
until_ok 20 sh -c 'edgectl policy | grep -q "line 2 *limits *memory *64M"'
until_ok 20 status_is 0
h=$(edgehub run vm --workdir own --detach -- sh -c 'head -c 4194304 /dev/urandom >f; sync f; sleep 1000')
until_ok 20 test -e "$tree/w.$h"
ok "a start that asks for nothing gets the ceiling of memory" is "$(cat "$tree/w.$h/memory.max")" 67108864
ok "and of processes" is "$(cat "$tree/w.$h/pids.max")" 40
if grep -qw io $tree/cgroup.controllers; then
	ok "and of the disk" grep -q 'rbps=1048576 wbps=1048576' "$tree/w.$h/io.max"
	began=$(date +%s)
	edgehub run vm --workdir disk -- dd if=/dev/zero of=g bs=256k count=20 oflag=direct 2>/dev/null
	ok "and it is held to that: 5 MiB take more than 3 s" test $(($(date +%s) - began)) -gt 3
else
	skip "the rate of the disk" "no controller io here"
fi
ok "one that asks for more is refused with the line" sh -c '! edgehub run vm --memory 65M -- true 2>/tmp/err && grep -q "policy.conf:2: memory = 64M" /tmp/err'
ok "which a test tells beforehand" sh -c 'echo "{\"spec\": {\"argv\": [\"x\"], \"resource_limits\": {\"memory_mb\": 65}}}" | edgectl policy test - | grep -q "policy.conf:2: memory"'
edgehub signal "$h" KILL >/dev/null
edgehub logs "$h" -f >/dev/null 2>&1
rm /etc/edgeward/policy.conf
systemctl reload edgeward-connectd edgeward-workerd
ok "all is well after that" until_ok 20 status_is 0
exit $failed
