# Another process inside a container that runs, for an operator's session: ENGINE WHERE SOCKET NAME MODE TERM MARK [COMMAND ...]. MODE is t (a terminal), i (input)
# or n (input that has ended). An engine goes on with what its client has begun when that client ends; so what carries MARK is ended from inside, as
# far as the image has a shell. It has the container's own id, capabilities and filter, and ends with the container at the latest.
# It always gets a pipe of the engine's as input: without --interactive that is the machine's /dev/null, which crun (1.8.1) gives to the runner.
EW_ENGINE=$1 EW_WHERE=$2 EW_SOCKET=$3 name=$4 mode=$5 term=$6 mark=$7
shift 7
export XDG_RUNTIME_DIR=/tmp LC_ALL=C
[ $# -gt 0 ] || set -- /bin/sh
opened=--interactive
[ "$mode" != t ] || opened=--tty\ --interactive
# The engine's client is a child of ours: a hang-up ends it, and then we go on here.
trap : HUP INT TERM
"$EW_ENGINE" "$EW_WHERE" "unix://$EW_SOCKET" exec $opened --env "TERM=$term" --env "EDGEWARD_SESSION=$mark" "$name" "$@"
code=$?
trap '' HUP INT TERM
quick exec --interactive "$name" /bin/sh -c 'self=$$
for p in /proc/[0-9]*; do
	[ "${p#/proc/}" = "$self" ] && continue
	case $(tr "\0" "\n" < "$p/environ" 2>/dev/null) in
	*"EDGEWARD_SESSION=$1"*) kill -9 "${p#/proc/}" ;;
	esac
done' sh "$mark" >/dev/null 2>&1
exit "$code"
