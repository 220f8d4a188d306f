# A workspace that failed or was cancelled: what the fetch had begun goes.
sweep
exit 0
