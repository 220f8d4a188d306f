# What the steps of a container share. They run as the runner inside the sandbox, without a network, with the engine's socket alone
# of what is the machine's; what they print is part of the workload's log, and the last line that begins with "edgeward: " is the
# reason when they fail. EW_ENGINE is the client, EW_WHERE its option for the socket EW_SOCKET.
set -u
umask 077
unset CDPATH ENV IFS
say() { printf 'edgeward: %s\n' "$*"; }
fail() { say "$*"; exit 1; }
engine() { "$EW_ENGINE" "$EW_WHERE" "unix://$EW_SOCKET" "$@" </dev/null; }
# For what ends soon, unless the engine hangs.
quick() { timeout -k 5 60 "$EW_ENGINE" "$EW_WHERE" "unix://$EW_SOCKET" "$@" </dev/null; }

# Bytes of the work directory; the walk stays in its file system. What vanishes while it is looked at is nobody's fault.
used() {
	kib=$(du -skx . 2>/dev/null)
	kib=${kib%%[!0-9]*}
	echo "$((${kib:-0} * 1024))"
}

# The containers of one handle of ours, and of no other: by label, never by name.
ours() { quick ps --all --quiet --no-trunc --filter "label=edgeward.agent=$EW_AGENT" "$@"; }

# Removes containers until a list says that there are none. LIST is a function; the engine's last word goes to standard output.
until_gone() {
	quiet=0
	for _ in $(seq 1 "$EW_TRIES"); do
		if left=$("$1" 2>/tmp/edgeward-said); then
			if [ -z "$left" ]; then
				quiet=$((quiet + 1))
				[ "$quiet" -lt "$EW_SURE" ] || return 0
			else
				quiet=0
				for id in $left; do
					quick rm --force --volumes $EW_RM_MORE "$id" >/dev/null 2>/tmp/edgeward-said || :
				done
				[ -z "$("$1" 2>/dev/null || echo unknown)" ] && [ "$EW_SURE" -le 1 ] && return 0
			fi
		fi
		sleep 1
	done
	head -c 2000 /tmp/edgeward-said
	return 1
}
