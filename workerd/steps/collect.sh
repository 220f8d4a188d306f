# After the workload, without credential. Commits what it left, makes the bundle, looks whether there is a project state to read.
# The bundle and behind it 1024 bytes of what is known of it go to descriptor 0, which no program of the repository gets.
# EW_BACK push, bundle or none; EW_BASE, EW_BRANCH, EW_MESSAGE, EW_MAX; EW_SEEDED 0 or 1.
skip= head= commits=0 files=0 project= data=
work() {
	plain_git || fail "the workload left no plain repository"
	# The most any file it writes may have, the bundle included.
	most="a result may have at most $((EW_MAX / 1048576)) MiB"
	ulimit -f $((EW_MAX / 512 + 64)) || fail "the size limit cannot be set"
	by_git add --all || fail "git add failed$cause"
	if ! git diff --cached --quiet --no-ext-diff --no-textconv < /dev/null; then
		by_git -c user.name=edgeward -c user.email=edgeward@localhost commit --quiet --no-verify --message="$EW_MESSAGE" ||
			fail "git commit failed$cause"
	fi
	head=$(git rev-parse --verify --quiet 'HEAD^{commit}' < /dev/null) && is_commit "$head" || fail "the workload left no commit"
	quarantine
	q cat-file -e "$EW_BASE^{commit}" 2>/dev/null || fail "the commit it began with is gone"
	if [ "$head" = "$EW_BASE" ]; then
		others=$(git for-each-ref --format='%(refname:short)' --no-merged "$EW_BASE" refs/heads < /dev/null | head -n 3 | head -c 300 | tr '\n' ' ')
		skip="the workload changed nothing${others:+ where it ended; not taken is what lies on ${others% }}"
		return
	fi
	q merge-base --is-ancestor "$EW_BASE" "$head" || fail "what the workload left does not descend from the commit it began with"
	commits=$(q rev-list --count "$EW_BASE..$head") || fail "the commits cannot be counted"
	files=$(q diff --name-only --no-renames --no-ext-diff "$EW_BASE" "$head" | head -n 20001 | wc -l)
	[ "$commits" -le 1000 ] && [ "$files" -le 20000 ] || fail "more than 1000 commits or 20000 files were changed"
	say "$commits commits, $files files changed, for $EW_BRANCH"
	[ "$EW_BACK" = bundle ] || return 0
	q update-ref "refs/heads/$EW_BRANCH" "$head" || fail "the branch cannot be named"
	q bundle create --quiet - "$EW_BASE..refs/heads/$EW_BRANCH" >&0 || fail "the bundle could not be made; $most"
}
[ "$EW_BACK" = none ] || work
if [ "$EW_SEEDED" = 1 ]; then
	if [ -L .cloop ] || [ -L .cloop/state.db ]; then
		project=link
	elif [ -e .cloop/state.db ]; then
		project=database
	else
		project=none
		step=$(head -c 33554432 .cloop/state.json 2>/dev/null | grep -ao '"current_step": *[0-9]\{1,9\}' | head -n 1 | tr -cd 0-9)
		data=$(printf '{"format":1,"base_step":%s}' "${step:-0}" | gzip -n | base64 -w 0)
	fi
fi
printf '%-1023s\n' "head=$head commits=$commits files=$files project=$project data=$data skip=$skip" >&0
