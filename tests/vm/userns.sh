#!/bin/bash
# A machine that withholds user namespaces, for real: by user.max_user_namespaces = 0, then by Debian's switch for those without privilege.
# By name. What cannot be given is refused by name, told in the capabilities and by the doctor; sandbox-level = uid and best-effort are the
# two ways on, and what they leave is looked at from inside of the workload.
. /payload/lib.sh
/payload/units.sh || failed=1
systemctl start edgeward-privhelper edgeward-workerd edgeward-connectd
ok "all is well before" until_ok 20 status_is 0
run() { edgehub run vm "$@" </dev/null >/tmp/out 2>/tmp/err; }
again() { # the launcher looks at the machine when it starts
	systemctl restart edgeward-workerd
	until_ok 20 sh -c 'edgectl workloads >/dev/null && edgehub devices | grep -q connected'
	until_ok 20 sh -c 'edgectl status | grep -qi connected'
}
policy() { printf '%b' "$1" >/etc/edgeward/policy.conf; systemctl reload edgeward-connectd edgeward-workerd; sleep 1; }
conf=/etc/edgeward/edgeward.conf
cp $conf /tmp/conf.before
read -r first count gid </etc/edgeward/pool

withheld() { # withheld NAME: the same questions however it was switched off
	ok "$1: the kernel refuses them" sh -c '! setpriv --reuid=edgeward-work --clear-groups unshare -U true'
	# Found by whoever asks for the inventory, without a restart of anything but workerd.
	launcher=$(systemctl show -p MainPID --value edgeward-workerd)
	edgehub harness list vm >/dev/null 2>&1
	ok "$1: told in the same session" until_ok 20 sh -c 'edgehub -j devices | tr -d " \n" | grep -q "\"user_ns\":false"'
	ok "$1: by the same launcher" is "$(systemctl show -p MainPID --value edgeward-workerd)" "$launcher"
	again
	run --workdir a -- true
	ok "$1: require refuses a start" is $? 123
	ok "$1: by name" grep -q "does not give: .*user namespace" /tmp/err
	ok "$1: and says what does without" grep -q "sandbox-level = uid in policy.conf does without" /tmp/err
	edgectl reconnect >/dev/null	# they are told in the hello, and by inventory when a hub asks
	ok "$1: the capabilities say so" until_ok 20 sh -c 'edgehub -j devices | tr -d " \n" | grep -q "\"user_ns\":false"'
	until_ok 20 sh -c 'edgectl status | grep -qi connected'
	edgectl doctor >/tmp/doctor 2>&1
	ok "$1: the doctor names the switch" grep -qE "user namespaces are (switched off|root)" /tmp/doctor

	policy '[work]\nsandbox-level = uid\n'
	until_ok 20 run --workdir a -- true
	ok "$1: sandbox-level = uid starts" run --workdir a -- true
	edgehub run vm --workdir b --detach -- sleep 1000 >/tmp/other
	until_ok 20 pgrep -f '^sleep 1000'
	other=$(pgrep -f '^sleep 1000')
	# shellcheck disable=SC2016
	run --workdir a -- sh -c '
		echo uid $(id -u) gid $(id -g) groups $(id -G)
		grep -E "^(CapPrm|CapEff|CapInh|CapAmb|NoNewPrivs|Seccomp):" /proc/self/status | tr -d "\t"
		cat /proc/self/cgroup
		echo x >/usr/ew-test 2>/dev/null && echo wrote-usr
		echo x >/tmp/../var/tmp/ew-test 2>/dev/null && echo wrote-vartmp
		cat /var/lib/edgeward/connectd/* 2>/dev/null && echo read-credential
		ls /var/lib/edgeward/work/b 2>/dev/null && echo read-neighbour
		cat /proc/'"$other"'/environ 2>/dev/null >/dev/null && echo read-environ
		kill -0 '"$other"' 2>/dev/null && echo signalled
		unshare -U true 2>/dev/null && echo nested
		echo mine >file && cat file'
	ok "$1: uid: it ran" grep -qx mine /tmp/out
	uid=$(sed -n 's/^uid \([0-9]*\) .*/\1/p' /tmp/out)
	ok "$1: uid: a runner of the pool" test "${uid:-0}" -ge "$first" -a "${uid:-0}" -lt $((first + count))
	ok "$1: uid: its group and no other" grep -qx "uid $uid gid $gid groups $gid" /tmp/out
	ok "$1: uid: another runner for each directory" sh -c "[ $(stat -c %u /var/lib/edgeward/work/a) != $(stat -c %u /var/lib/edgeward/work/b) ]"
	ok "$1: uid: no capabilities" is "$(grep -cE '^Cap(Prm|Eff|Inh|Amb):0000000000000000$' /tmp/out)" 4
	ok "$1: uid: no_new_privs and seccomp" is "$(grep -cxE 'NoNewPrivs:1|Seccomp:2' /tmp/out)" 2
	ok "$1: uid: its own cgroup" grep -q '/edgeward-workerd.service/w\.' /tmp/out
	ok "$1: uid: nothing of what it may not" sh -c '! grep -E "^(wrote-usr|wrote-vartmp|read-credential|read-neighbour|read-environ|signalled|nested)$" /tmp/out'
	echo canary >/tmp/secret.file
	run --workdir a --secret-file key=@/tmp/secret.file -- true
	ok "$1: uid: secret files are refused by name" grep -q "secret files need a view of the file system" /tmp/err
	run --workdir a --network none -- true
	ok "$1: uid: a network of its own, too" grep -q "no network namespaces" /tmp/err
	edgehub signal "$(cat /tmp/other)" KILL >/dev/null
	edgehub logs "$(cat /tmp/other)" -f >/dev/null 2>&1
	ok "$1: uid: killed, nothing is left" until_ok 10 sh -c '! pgrep -f "^sleep 1000"'
	rm /etc/edgeward/policy.conf
	systemctl reload edgeward-connectd edgeward-workerd

	sed 's/^\[link\]/[work]\nsandbox = best-effort\n&/' /tmp/conf.before >$conf
	systemctl reload edgeward-workerd
	until_ok 20 run --workdir c -- true
	ok "$1: best-effort starts" run --workdir c -- true
	ok "$1: and status tells what is missing" sh -c 'edgectl status | grep -qi "user namespace" || edgectl -j status | grep -qi "user namespace"'
	cp /tmp/conf.before $conf
	systemctl reload edgeward-workerd
}

sysctl -qw user.max_user_namespaces=0
withheld "max_user_namespaces"
sysctl -qw user.max_user_namespaces=3000
if [ -e /proc/sys/kernel/unprivileged_userns_clone ]; then
	sysctl -qw kernel.unprivileged_userns_clone=0
	withheld "unprivileged_userns_clone"
	sysctl -qw kernel.unprivileged_userns_clone=1
else
	skip "unprivileged_userns_clone" "not a switch of this kernel"
fi
edgehub harness list vm >/dev/null 2>&1
ok "given again: told in the same session" until_ok 20 sh -c 'edgehub -j devices | tr -d " \n" | grep -q "\"user_ns\":true"'
ok "given again: work has namespaces without a restart" until_ok 20 run --workdir a -- true
again
ok "given again: work has namespaces again" until_ok 20 run --workdir a -- true
edgectl reconnect >/dev/null
ok "and the capabilities say so" until_ok 20 sh -c 'edgehub -j devices | tr -d " \n" | grep -q "\"user_ns\":true"'
ok "no filter was hit" bash -c '! journalctl -b --no-pager | grep -E "status=31/SYS|SIGSYS|audit.*type=1326"'
exit $failed
