# After the fetch, without network credential: the files of the commit, then the project seed (descriptor 0) when there is one.
# Filters that the repository's own configuration names may run from here on: they are the workload's equal.
# EW_KIND git, bundle or none; EW_BRANCH; EW_LIMIT; EW_SEEDED 0 or 1; EW_RUN.
exclude() {
	[ -L .git/info ] && rm -f .git/info
	mkdir -p .git/info
	grep -qsxF /.cloop/ .git/info/exclude || echo /.cloop/ >> .git/info/exclude
}
if [ "$EW_KIND" != none ]; then
	plain_git || fail "the fetched repository is gone"
	commit=$(head -c 40 .git/edgeward-base) && is_commit "$commit" || fail "the fetched commit is gone"
	[ "${EW_LIMIT:-0}" = 0 ] && most= || most="the limit of this workspace is $((EW_LIMIT / 1048576)) MiB"
	[ "${EW_LIMIT:-0}" = 0 ] || ulimit -f $((EW_LIMIT / 512 + 1)) || fail "the size limit cannot be set"
	if [ "$EW_KIND" = bundle ]; then
		by_git checkout --quiet -B "$EW_BRANCH" "$commit" || fail "git checkout failed$cause"
	else
		by_git checkout --quiet --detach "$commit" || fail "git checkout failed$cause"
	fi
	[ "$(git rev-parse --verify --quiet HEAD)" = "$commit" ] || fail "the checkout is not at $commit"
	# HOME, where the start names no other: beside the tree, so that what programs keep there is in no commit.
	{ [ -d .git/edgeward-home ] && [ ! -L .git/edgeward-home ]; } || { rm -rf .git/edgeward-home && mkdir .git/edgeward-home; } &&
		chmod 700 .git/edgeward-home || fail "the work directory cannot be written"
	measure
fi
if [ "$EW_SEEDED" = 1 ]; then
	[ ! -L .cloop ] || fail ".cloop is a symbolic link; remove it"
	[ "$EW_KIND" = none ] || exclude
	mkdir -p .cloop && chmod 700 .cloop || fail ".cloop cannot be made"
	seed=$(mktemp .cloop/.seed-XXXXXX) || fail ".cloop cannot be written"
	gzip -dc <&0 2>/dev/null | head -c 33554433 > "$seed"
	size=$(stat -c %s "$seed")
	if [ "$size" -gt 33554432 ] || [ "$(head -c 1 "$seed")" != "{" ]; then
		rm -f "$seed"
		fail "the project seed is no JSON object of at most 32 MiB"
	fi
	rm -rf .cloop/state.db .cloop/state.db-wal .cloop/state.db-shm .cloop/state.db-journal .cloop/state.json .cloop/sandbox-run.json
	mv -f "$seed" .cloop/state.json || fail ".cloop cannot be written"
	printf '{"kind":"remote","isolation":"remote","run_id":"%s","started_at":"%s"}\n' "$EW_RUN" \
		"$(date -u +%Y-%m-%dT%H:%M:%SZ)" > .cloop/sandbox-run.json
fi
[ "$EW_KIND" = none ] || rm -f $MARK
exit 0
