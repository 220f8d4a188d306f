#!/bin/sh
# embed.sh COMMON STEP...: the steps, each behind what they share, as C strings on standard output.
set -eu
quote() { sed -e '/^#/d' -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/"&\\n"/' -- "$1"; }
common=$1
shift
echo '/* Made from workerd/steps by embed.sh. */'
for step; do
	name=${step##*/}
	printf 'static const char step_%s[] =\n' "${name%.sh}"
	quote "$common"
	quote "$step"
	echo ';'
done
