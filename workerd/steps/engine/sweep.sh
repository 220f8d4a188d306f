# Containers that nobody holds: what an earlier workerd started (EW_INSTANCE is the present one) and is not of a handle that is held
# still (EW_KEEP); and those of the handles EW_HANDLES, whose removal failed. This is also how the engine is asked whether it is there.
lost() {
	all=$(ours) || return 1
	mine=$(ours --filter "label=edgeward.instance=$EW_INSTANCE") || return 1
	for handle in $EW_KEEP; do
		mine="$mine $(ours --filter "label=edgeward.handle=$handle")" || return 1
	done
	set -- $mine
	mine=" $* "
	for id in $all; do
		case $mine in
		*" $id "*) ;;
		*) echo "$id" ;;
		esac
	done
	for handle in $EW_HANDLES; do
		ours --filter "label=edgeward.handle=$handle" || return 1
	done
}
until_gone lost && exit 0
fail "$(tail -n 1 /tmp/edgeward-said | head -c 180)"
