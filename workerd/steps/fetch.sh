# The one step before the workload that has network and credential. Nothing that lies in the work directory is executed or
# configures anything here: objects go into it, names and settings are our own.
# EW_KIND git or bundle; EW_REPO, EW_REF, EW_DEPTH, EW_USER, EW_PASSWORD; EW_HEAD, EW_SHA256, EW_BYTES, EW_SHALLOW; EW_LIMIT.
command -v git > /dev/null || fail "no git on this device; install it"
sweep
same() { a=${1%/}; printf '%s' "${a%.git}"; }
if [ -L .git ] || { [ -e .git ] && ! plain_git; }; then
	fail "the work directory has a .git that is no plain repository; remove it or use another directory"
fi
if [ -d .git ]; then
	have=$(git config --no-includes --file .git/config --get remote.origin.url 2>/dev/null) || have=
	want=${EW_REPO:-}
	[ "$(same "$have")" = "$(same "$want")" ] ||
		fail "the work directory holds a checkout of ${have:-another origin}, not of ${want:-a shipped branch}; use another directory"
else
	[ -z "$(ls -A | head -n 1)" ] && state=empty || state=kept
	mkdir .git && echo $state > $MARK || fail "the work directory cannot be written"
	git init --quiet --template= . || fail "git init failed"
	[ -z "${EW_REPO:-}" ] || git config --file .git/config remote.origin.url "$EW_REPO"
fi
quarantine
# The most any file it writes may have; git's own word for that is none of its reasons.
[ "${EW_LIMIT:-0}" = 0 ] && most= || most="; the limit of this workspace is $((EW_LIMIT / 1048576)) MiB"
[ "${EW_LIMIT:-0}" = 0 ] || ulimit -f $((EW_LIMIT / 512 + 1)) || fail "the size limit cannot be set"
base=$(head -c 40 .git/edgeward-base 2>/dev/null) || base=
if is_commit "$base" && q cat-file -e "$base^{commit}" 2>/dev/null; then
	q update-ref refs/heads/base "$base"	# what is here already need not come again
fi
if [ "$EW_KIND" = git ]; then
	say "fetching ${EW_REF:-the default branch} of $EW_REPO"
	authorized q fetch --quiet --no-tags ${EW_DEPTH:+--depth "$EW_DEPTH"} -- "$EW_REPO" "${EW_REF:-HEAD}" ||
		fail "git fetch of ${EW_REF:-the default branch} failed$(why)$most"
	commit=$(q rev-parse --verify --quiet 'FETCH_HEAD^{commit}') || fail "the ref is no commit"
	! is_commit "${EW_REF:-}" || [ "$commit" = "$EW_REF" ] || fail "the server sent $commit instead of $EW_REF"
else
	say "unpacking the shipped branch ${EW_BRANCH}"
	head -c $((EW_BYTES + 1)) <&0 > "$Q_OBJECTS/edgeward-bundle" || fail "the shipped branch cannot be stored"
	file=$Q_OBJECTS/edgeward-bundle
	size=$(stat -c %s "$file")
	sum=$(sha256sum "$file") sum=${sum%% *}
	if [ "$size" != "$EW_BYTES" ] || { [ -n "${EW_SHA256:-}" ] && [ "$sum" != "$EW_SHA256" ]; }; then
		rm -f "$file"
		fail "the shipped branch does not match its size or digest"
	fi
	for c in ${EW_SHALLOW:-}; do echo "$c"; done > "$Q/edgeward-shallow"
	[ ! -s "$Q/edgeward-shallow" ] || cp "$Q/edgeward-shallow" "$Q/shallow"
	q bundle unbundle "$file" > /dev/null || { rm -f "$file"; fail "the shipped branch is no bundle that can be unpacked here"; }
	rm -f "$file"
	commit=$EW_HEAD
	q cat-file -e "$commit^{commit}" 2>/dev/null || fail "the shipped branch does not hold $commit"
fi
if [ -f "$Q/shallow" ]; then
	rm -rf .git/shallow && cp "$Q/shallow" .git/shallow
else
	rm -rf .git/shallow
fi
rm -rf .git/edgeward-base && echo "$commit" > .git/edgeward-base || fail "the work directory cannot be written"
measure
say "at commit $commit"
