# A harness, by its vendor's own installer. The work directory is HOME, and every workload sees it read-only afterwards. The script comes over TLS from
# the vendor's domain and nowhere else; it runs with HOME and PATH and nothing more, in a directory of its own that goes with this step.
# EW_NAME, EW_URL, EW_DOMAIN.
command -v curl > /dev/null || fail "no curl on this device to fetch the installer with; install curl, or $EW_NAME itself below /usr/local/bin"
command -v bash > /dev/null || fail "no bash on this device to run the installer with"
umask 022
chmod 755 . || fail "the directory cannot be made readable"
Q=$(umask 077 && mktemp -d /tmp/edgeward-install.XXXXXX) || fail "no temporary directory"
script=$Q/install.sh
url=$EW_URL hops=0 until=$(($(date +%s) + 60))
while :; do
	rest=${url#https://}
	[ "$rest" != "$url" ] || fail "its server leads to $url, which is not https"
	host=${rest%%[/?#]*}
	host=${host%:443}
	case $host in
	*[!A-Za-z0-9.-]*) fail "its server leads to $host, which is no plain name of a host" ;;
	esac
	case $(printf %s "$host" | tr A-Z a-z) in
	"$EW_DOMAIN" | *".$EW_DOMAIN") ;;
	*) fail "its server leads to $host, which is not of $EW_DOMAIN" ;;
	esac
	left=$((until - $(date +%s)))
	[ "$left" -gt 0 ] || fail "the installer could not be fetched in 60 seconds"
	answer=$(ulimit -f 4097 && curl -q --silent --show-error --proto =https --tlsv1.2 --max-time "$left" --max-filesize 2097152 \
		--output "$script" --write-out '%{http_code} %{redirect_url}' -- "$url") || fail "the installer cannot be fetched from $url, or is larger than 2 MiB"
	case $answer in
	200*) break ;;
	30[12378]*) ;;
	*) fail "$url answered ${answer%% *}" ;;
	esac
	hops=$((hops + 1))
	[ $hops -le 5 ] || fail "the server of the installer leads on and on"
	url=${answer#* }
done
[ "$(stat -c %s "$script")" -le 2097152 ] || fail "the installer is larger than 2 MiB"
say "running the installer of $EW_NAME from $url"
here=$PATH
(cd "$Q" && exec env -i HOME="$HOME" PATH="$HOME/.local/bin:$here" bash "$script") < /dev/null || fail "the installer ended with exit code $?"
PATH=$HOME/.local/bin:$HOME/.npm-global/bin:$here
where=$(command -v "$EW_NAME") && [ -f "$where" ] && [ -x "$where" ] || fail "the installer ended well, but there is no $EW_NAME in PATH"
chmod -R u+rwX,go+rX,go-w -- . || fail "what was installed cannot be made readable"
version=$(timeout 20 env -i HOME="$HOME" PATH="$PATH" "$where" --version 2> /dev/null < /dev/null | head -n 1 | tr -cd ' -~' | cut -c 1-60)
say "version=$version"
