# What the steps around a workload share. They run as the runner inside the sandbox, in the work directory; what they print is
# part of the workload's log, and the last line that begins with "edgeward: " is the reason when they fail. They trust nothing
# that lies in the work directory: an earlier workload may have written all of it.
set -u
umask 077
unset CDPATH ENV IFS
say() { printf 'edgeward: %s\n' "$*"; }
fail() { say "$*"; exit 1; }
Q=
leave() { r=$?; [ -z "$Q" ] || rm -rf -- "$Q"; exit "$r"; }
trap leave EXIT
trap 'exit 143' TERM INT HUP

N=0
setting() {
	export "GIT_CONFIG_KEY_$N=$1" "GIT_CONFIG_VALUE_$N=$2"
	N=$((N + 1))
	export GIT_CONFIG_COUNT=$N
}
export GIT_TERMINAL_PROMPT=0 GIT_ASKPASS=/nonexistent SSH_ASKPASS=/nonexistent GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null \
	GIT_HTTP_USER_AGENT=edgeward-workspace GIT_ALLOW_PROTOCOL=https GIT_PROTOCOL_FROM_USER=0 GIT_LFS_SKIP_SMUDGE=1 \
	GIT_PAGER=cat GIT_EDITOR=true LC_ALL=C
setting http.followRedirects false
setting credential.helper ''
setting core.hooksPath /dev/null
setting core.fsmonitor false
setting core.askPass /nonexistent
setting core.sshCommand /nonexistent
setting core.alternateRefsCommand true	# else git looks into the repository that an alternate of the work directory belongs to
setting submodule.recurse false
setting fetch.recurseSubmodules false
setting gc.auto 0
setting maintenance.auto false
setting commit.gpgSign false
setting advice.detachedHead false

# A repository of our own with the objects of the one in the work directory and nothing else of it: no configuration, no hooks. It lies in this
# step's own /tmp, as another workload may run in the work directory meanwhile. Where /tmp is everybody's, what was killed is left there.
quarantine() {
	find /tmp -maxdepth 1 -name 'edgeward-q.*' -user "$(id -u)" -mmin +60 -exec rm -rf -- {} +
	Q=$(mktemp -d /tmp/edgeward-q.XXXXXX) || fail "no temporary directory"
	git init --quiet --bare --template= -- "$Q" || fail "git init failed"
	[ ! -f .git/shallow ] || [ -L .git/shallow ] || cp .git/shallow "$Q/shallow"
	Q_OBJECTS=$PWD/.git/objects
}
q() { GIT_DIR=$Q GIT_OBJECT_DIRECTORY=$Q_OBJECTS git "$@"; }

# Runs a command with the credential at hand; what a server repeats of it does not reach the log.
authorized() {
	if [ -n "${EW_PASSWORD:-}" ]; then
		EW_BASIC=$(printf '%s:%s' "${EW_USER:-x-access-token}" "$EW_PASSWORD" | base64 -w 0)
		export EW_BASIC
		site=${EW_REPO#https://}
		setting "http.https://${site%%/*}/.extraHeader" "Authorization: Basic $EW_BASIC"
	fi
	export EW_WHY="$Q/edgeward-why"
	{ "$@" 2>&1; echo $? > "$Q/edgeward-status"; } | awk 'function hide(w,   i, out) {
		if (length(w) < 4) return
		out = ""
		while ((i = index($0, w)) > 0) { out = out substr($0, 1, i - 1) "***"; $0 = substr($0, i + length(w)) }
		$0 = out $0
	} { hide(ENVIRON["EW_PASSWORD"]); hide(ENVIRON["EW_BASIC"]); print substr($0, 1, 2000); fflush() }
	/^fatal: / { why = substr($0, 8, 110) } /^ ! \[/ { why = substr($0, 4, 110) } END { if (why != "") print why > ENVIRON["EW_WHY"] }'
	return "$(cat "$Q/edgeward-status")"
}

# ": CAUSE" of what authorized() ran, or nothing. The hub's ca-file is the link's alone, which nobody guesses.
why() {
	cause=$(cat "$EW_WHY" 2>/dev/null) || return 0
	case $cause in
	*[Cc]ertificate*) cause="the server's certificate is not trusted: add its CA (update-ca-certificates), or GIT_SSL_CAINFO for edgeward-workerd, see workerd(8)" ;;
	esac
	printf ': %s' "$cause"
}

is_commit() {
	case $1 in
	*[!0-9a-f]*) return 1 ;;
	esac
	[ ${#1} -eq 40 ]
}

# The repository in the work directory is a plain one of ours: a .git that is a link or a file leads elsewhere.
plain_git() { [ -d .git ] && [ ! -L .git ] && [ -d .git/objects ] && [ ! -L .git/objects ]; }

# Everything of a checkout that was begun and not finished; never what was there before it.
MARK=.git/edgeward-fresh
sweep() {
	[ ! -L .git ] && [ -f $MARK ] || return 0
	if [ "$(head -c 5 $MARK)" = empty ]; then
		find . -xdev -mindepth 1 -maxdepth 1 -exec rm -rf -- {} +
	else
		rm -rf .git
	fi
}

# git, and in cause with what word it failed. None, or one about size, is that of the limit, for which most has a text where there is one.
by_git() {
	said=$(mktemp /tmp/edgeward-said.XXXXXX) || fail "no temporary file"
	git "$@" < /dev/null 2> "$said"
	code=$?
	cat "$said"
	cause=$(sed -n 's/^fatal: //p;s/^error: //p' "$said" | head -n 1 | cut -c 1-110)
	rm -f "$said"
	case $cause in
	'' | *"File too large"*) cause=${most:+; $most} ;;
	*) cause=": $cause" ;;
	esac
	return $code
}

# Size of the work directory against EW_LIMIT (bytes): the walk is bounded.
measure() {
	[ "${EW_LIMIT:-0}" != 0 ] || return 0
	find . -xdev -printf '%k\n' 2>/dev/null | head -n 500001 | awk -v limit="$EW_LIMIT" '{ n++; k += $1 }
		END { exit n > 500000 || k * 1024 > limit }' || fail "the workspace is larger than its limit of $((EW_LIMIT / 1048576)) MiB, or has more than 500000 files"
}
