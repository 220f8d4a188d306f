# The container of a workload that has ended, or whose client was killed: gone, and seen to be gone.
mine() { ours --filter "label=edgeward.handle=$EW_HANDLE"; }
until_gone mine && exit 0
fail "the container could not be removed: $(tail -n 1 /tmp/edgeward-said | head -c 150)"
