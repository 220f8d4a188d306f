#!/bin/bash
# debian/tests of the packages, run by autopkgtest itself, which installs the packages for it. Runs in the container of tests/vm/nspawn, whose
# root is the testbed (autopkgtest-virt-null); /debs has the packages, /source the tree with debian/.
. /payload/lib.sh
rm -f /usr/sbin/policy-rc.d	# a container's own rule that nothing may be started
# No archive can be reached from here.
echo 'APT::Install-Recommends "false";' >/etc/apt/apt.conf.d/99-test
: >/etc/apt/sources.list
rm -f /etc/apt/sources.list.d/*
autopkgtest --no-built-binaries --output-dir=/tmp/autopkgtest /debs/*.deb /source/ -- null >/tmp/autopkgtest.out 2>&1
ok "autopkgtest" is $? 0
cat /tmp/autopkgtest/summary
grep -q '^smoke *PASS' /tmp/autopkgtest/summary || { echo "FAILED: smoke is not PASS"; tail -60 /tmp/autopkgtest.out; failed=1; }
exit $failed
