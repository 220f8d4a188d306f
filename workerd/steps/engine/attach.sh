# Runs the container that was created: its output is ours, and how it ended is what we end with. 125 is an engine that did not run it.
# Signals of ours, which no container can send to us: 63 the limit of disk, 62 the limit of memory, 61 nobody knows how it ended.
ask= child= over=/tmp/edgeward-over
forward() {
	ask=$2
	quick kill --signal "$1" "$EW_NAME" >/dev/null 2>&1 &
}
trap 'forward INT 2' INT
trap 'forward TERM 15' TERM

# Samples the work directory. A breach ends the container at once.
watch_disk() {
	trap - INT TERM
	while sleep "$EW_PAUSE"; do
		now=$(used)
		[ "$now" -gt "$EW_DISK" ] || continue
		echo "$now" > $over
		until quick kill --signal KILL "$EW_NAME" >/dev/null 2>&1; do sleep 1; done
		return
	done
}

# STATUS EXIT OOM of the container, or nothing while the engine does not answer.
state() { quick inspect --type container --format '{{.State.Status}} {{.State.ExitCode}} {{.State.OOMKilled}}' "$EW_NAME" 2>/dev/null; }

# A trapped signal ends wait, not the one that is waited for.
follow() {
	"$@" </dev/null &
	child=$!
	while :; do
		wait "$child"
		code=$?
		kill -0 "$child" 2>/dev/null || return "$code"
	done
}

die() {
	trap - INT TERM
	kill "-$1" $$
	sleep 5
}

watcher=
if [ "$EW_DISK" != 0 ]; then
	watch_disk &
	watcher=$!
fi
follow engine start --attach "$EW_NAME"
first=$?
tries=0
while :; do
	set -- $(state)
	case ${1:-} in
	exited | dead | stopped)
		break ;;
	created | configured | initialized)
		say "the engine did not run the container"
		[ "$first" != 0 ] && exit "$first"
		exit 125 ;;
	running | paused)
		# The client is gone and the container is not: the engine was started again, or the client was killed.
		say "the connection to the container was lost; output may be missing here"
		follow engine attach --no-stdin --sig-proxy=false "$EW_NAME" ;;
	esac
	tries=$((tries + 1))
	if [ "$tries" -ge 60 ]; then
		say "the engine does not say how the container ended"
		die 61
	fi
	sleep 0.5
done
[ -z "$watcher" ] || kill "$watcher" 2>/dev/null
code=$2
if [ -s $over ]; then
	say "disk-limit: the work directory held $(cat $over) bytes, its limit is $EW_DISK"
	die 63
elif [ "${3:-}" = true ] && [ "$code" = 137 ]; then
	die 62
elif [ -n "$ask" ] && [ "$code" = $((128 + ask)) ]; then
	die "$ask"
fi
exit "$code"
