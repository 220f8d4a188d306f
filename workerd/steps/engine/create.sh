# The container, not started: what cannot be had is told before anything runs. The variables of the workload are in our environment.
if [ "$EW_DISK" != 0 ]; then
	now=$(used)
	[ "$now" -le "$EW_DISK" ] || fail "disk-limit: the work directory holds $now bytes already, its limit is $EW_DISK"
fi
if quick create "$@" >/tmp/edgeward-id 2>/tmp/edgeward-said; then
	exit 0
fi
head -c 2000 /tmp/edgeward-said
why=$(grep -m 1 -i error /tmp/edgeward-said) || why=$(tail -n 1 /tmp/edgeward-said)
fail "${EW_ENGINE##*/}: $(printf %s "$why" | head -c 180)"
