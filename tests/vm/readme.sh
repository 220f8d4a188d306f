#!/bin/bash
# The commands of README.md, "Install for real", typed as they stand there, on a system that has never seen the product. Runs in the container
# of tests/vm/nspawn; /readme/commands has the lines, /readme/build-deb the packages.
. /payload/lib.sh
rm -f /usr/sbin/policy-rc.d	# a container's own rule that nothing may be started
cd /readme || exit 1
command -v sudo >/dev/null || sudo() { "$@"; }
# What is only recommended cannot be fetched here.
echo 'APT::Install-Recommends "false";' >/etc/apt/apt.conf.d/99-readme
begin=$SECONDS
while read -r -u 3 line; do
	eval "$line" >/tmp/line.out 2>&1
	ok "${line:0:70}" is $? 0
	case $line in
	*"edgehub devices"*) ok "the device is there, connected" grep -E 'press-4.*connected' /tmp/line.out ;;
	*"uname -a"*) ok "work ran on it" grep -q "$(uname -r)" /tmp/line.out ;;
	*"edgectl status"*) ok "and says so itself" grep -q 'connected' /tmp/line.out ;;
	esac
done 3</readme/commands
echo "ok: it took $((SECONDS - begin)) s"
# The same machine by its other name.
ok "the hub's options" until_ok 10 bash -c "openssl s_client -connect localhost:8443 -servername hub.example -verify_hostname hub.example -CAfile /etc/edgeward/hub-ca.pem </dev/null 2>/dev/null | grep -q 'Verify return code: 0'"
ok "the device is back after the hub's restart" until_ok 30 status_is 0
edgectl doctor >/tmp/doctor.out; code=$?
ok "doctor finds nothing broken" test $code = 0 -o $code = 3
[ $code != 1 ] || grep -A1 FAIL /tmp/doctor.out
exit $failed
