# The other step with network and credential: as in fetch.sh nothing of the work directory but its objects is used.
# EW_REPO, EW_USER, EW_PASSWORD, EW_HEAD, EW_BRANCH.
plain_git || fail "the repository is gone"
quarantine
say "pushing $EW_HEAD to $EW_BRANCH of $EW_REPO"
authorized q push --quiet -- "$EW_REPO" "$EW_HEAD:refs/heads/$EW_BRANCH" || fail "git push failed$(why)"
