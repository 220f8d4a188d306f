# Read by the payloads of tests/vm, which run as root inside a container or a machine. One line a finding: "ok: ", "FAILED: " or
# "skipped: "; the last line of a payload is `exit $failed`. SLOW stretches every limit where the processor is emulated.
# shellcheck shell=bash
set -u
failed=0
SLOW=1
in_vm() { ! systemd-detect-virt -cq; }
! in_vm || SLOW=4
ok() { # ok WHAT COMMAND...
	local what=$1; shift
	if "$@" >/tmp/ok.out 2>&1; then echo "ok: $what"; else echo "FAILED: $what: $(tail -3 /tmp/ok.out | tr '\n' ' ')"; failed=1; fi
}
skip() { echo "skipped: $1: $2"; }
until_ok() { # until_ok SECONDS COMMAND...
	local end=$((SECONDS + $1 * SLOW)); shift
	until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || return 1; sleep 0.1; done
}
is() { [ "$1" = "$2" ] || { echo "is '$1', wanted '$2'"; return 1; }; }
status_is() { edgectl status >/dev/null 2>&1; [ $? = "$1" ]; }
main_pid() { systemctl show -p MainPID --value "edgeward-$1"; }
field() { sed -n "s/^$2:[[:space:]]*//p" "/proc/$1/status"; }
mode() { stat -c '%U:%G %a' "$1"; }
# The hub of these tests is a unit, so that it outlives the payload and is told apart in the journal.
start_hub() {
	ip link set lo up 2>/dev/null
	systemd-run --quiet --unit=test-hub edgehub serve -d /var/lib/edgehub -l 127.0.0.1:8443
	until_ok 10 edgehub status
}

# What `edgectl status -j` says, one PROCESS.KEY=VALUE a line, by nothing but awk: the machine of tests/vm/qemu has no other reader of JSON.
status_lines() {
	edgectl -j status 2>/dev/null | awk '
		/^  "[a-z_]+": \{$/ { split($0, part, "\""); of = part[2] "."; next }
		/^  \}/ { of = ""; next }
		/^ +"[a-z_]+": / { line = $0; sub(/^ +"/, "", line); sub(/": "?/, "=", line); sub(/"?,?$/, "", line); print of line }'
}
# status_has CONDITION...: each KEY=VALUE, KEY!=VALUE, or KEY>VALUE, which compares as text. A key that is not there fulfils none.
status_has() {
	local lines condition key want have
	lines=$(status_lines)
	for condition; do
		key=${condition%%[!a-z_.]*} want=${condition#"$key"}
		grep -q "^$key=" <<<"$lines" || { echo "no $key"; return 1; }
		have=$(sed -n "s/^$key=//p" <<<"$lines")
		case $want in
		'!='*) [ "$have" != "${want#!=}" ] ;;
		'>'*) [[ $have > ${want#>} ]] ;;
		*) [ "$have" = "${want#=}" ] ;;
		esac || { echo "not $condition: $have"; return 1; }
	done
}
