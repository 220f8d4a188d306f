# fish completion for edgehub(8)

function __edgehub_first
	not __fish_seen_subcommand_from serve token devices run runs logs secret harness cp result signal attach shell usb l2 services proxy ssh-proxy upgrade revoke status
end

function __edgehub_devices
	edgehub devices 2>/dev/null | awk 'NR > 1 { print $1 }'
end

complete -c edgehub -f
complete -c edgehub -n __edgehub_first -s d -r -a '(__fish_complete_directories)' -d 'data directory'
complete -c edgehub -n __edgehub_first -s S -r -F -d 'admin socket'
complete -c edgehub -n __edgehub_first -s j -d 'print JSON'
complete -c edgehub -n __edgehub_first -a serve -d 'the server'
complete -c edgehub -n __edgehub_first -a token -d 'enrollment tokens'
complete -c edgehub -n __edgehub_first -a devices -d 'all devices'
complete -c edgehub -n __edgehub_first -a run -d 'run a program on a device'
complete -c edgehub -n __edgehub_first -a runs -d 'what ran'
complete -c edgehub -n __edgehub_first -a logs -d 'stored output of a run'
complete -c edgehub -n __edgehub_first -a secret -d 'take secrets of a run back, or renew them'
complete -c edgehub -n __edgehub_first -a harness -d 'programs hubs ask for by name'
complete -c edgehub -n '__fish_seen_subcommand_from harness' -a 'list install (__edgehub_devices)'
complete -c edgehub -n '__fish_seen_subcommand_from run' -l disk-limit -x
complete -c edgehub -n '__fish_seen_subcommand_from run' -l overflow -x -a 'wait wait-forever drop'
complete -c edgehub -n __edgehub_first -a cp -d 'a file of a run, from its device or to it'
complete -c edgehub -n '__fish_seen_subcommand_from cp' -l no-wait -d 'do not wait for a device that is away'
complete -c edgehub -n __edgehub_first -a result -d 'what a run brought back'
complete -c edgehub -n __edgehub_first -a signal -d 'send a signal to a run'
complete -c edgehub -n __edgehub_first -a attach -d 'a process inside a run, with this terminal'
complete -c edgehub -n __edgehub_first -a shell -d 'the same in a run of its own'
complete -c edgehub -n __edgehub_first -a l2 -d 'join an Ethernet segment to a run'
complete -c edgehub -n '__fish_seen_subcommand_from l2' -a 'forward (__edgehub_devices)'
complete -c edgehub -n __edgehub_first -a usb -d 'lend a USB device to a run'
complete -c edgehub -n __edgehub_first -a services -d 'what a device serves'
complete -c edgehub -n __edgehub_first -a proxy -d 'a service of a device as a web page here'
complete -c edgehub -n __edgehub_first -a ssh-proxy -d 'for ProxyCommand of ssh'
complete -c edgehub -n __edgehub_first -a upgrade -d 'have a device upgrade itself'
complete -c edgehub -n __edgehub_first -a revoke -d 'take a credential back'
complete -c edgehub -n __edgehub_first -a status -d 'the server itself'
complete -c edgehub -n '__fish_seen_subcommand_from token' -a 'create list revoke'
complete -c edgehub -n '__fish_seen_subcommand_from run runs revoke' -a '(__edgehub_devices)'
complete -c edgehub -n '__fish_seen_subcommand_from logs' -s f -d follow
complete -c edgehub -n '__fish_seen_subcommand_from attach' -l read-only -d 'it reads nothing'
complete -c edgehub -n '__fish_seen_subcommand_from attach' -l watch -d 'look on at a session'
complete -c edgehub -n '__fish_seen_subcommand_from attach' -s T -d 'without a terminal'
complete -c edgehub -n '__fish_seen_subcommand_from shell' -l workdir -r -d 'work directory'
complete -c edgehub -n '__fish_seen_subcommand_from shell' -l timeout -r -d 'its longest time'
complete -c edgehub -n '__fish_seen_subcommand_from shell' -s T -d 'no terminal'
complete -c edgehub -n '__fish_seen_subcommand_from signal' -a 'INT TERM KILL'
complete -c edgehub -n '__fish_seen_subcommand_from secret' -a 'revoke refresh' -l kill
complete -c edgehub -n '__fish_seen_subcommand_from usb' -a 'forward list (__edgehub_devices)'
for option in busid server for name match retry
	complete -c edgehub -n '__fish_seen_subcommand_from usb' -l $option -x
end
complete -c edgehub -n '__fish_seen_subcommand_from services proxy ssh-proxy' -a '(__edgehub_devices)'
complete -c edgehub -n '__fish_seen_subcommand_from proxy' -l to -x
complete -c edgehub -n '__fish_seen_subcommand_from proxy' -l listen -x
complete -c edgehub -n '__fish_seen_subcommand_from proxy' -l host -x
complete -c edgehub -n '__fish_seen_subcommand_from proxy' -l tls-insecure
complete -c edgehub -n '__fish_seen_subcommand_from proxy' -l any-address
complete -c edgehub -n '__fish_seen_subcommand_from upgrade' -a '(__edgehub_devices)'
complete -c edgehub -n '__fish_seen_subcommand_from upgrade' -l to -x
complete -c edgehub -n '__fish_seen_subcommand_from upgrade' -l release -r
complete -c edgehub -n '__fish_seen_subcommand_from upgrade' -l settle -x
complete -c edgehub -n '__fish_seen_subcommand_from upgrade' -l no-wait
complete -c edgehub -n '__fish_seen_subcommand_from logs' -l follow -d follow
complete -c edgehub -n '__fish_seen_subcommand_from logs' -l from -x -d 'from this offset on'
complete -c edgehub -n '__fish_seen_subcommand_from result' -s o -r -F -d 'save its bundle'
complete -c edgehub -n '__fish_seen_subcommand_from devices' -l all -d 'revoked ones, too'
complete -c edgehub -n '__fish_seen_subcommand_from runs' -l open -d 'that have not ended'
complete -c edgehub -n '__fish_seen_subcommand_from runs' -l max -x
complete -c edgehub -n '__fish_seen_subcommand_from token' -l bundle -d 'with URL and pin in one string'
for option in name ttl server
	complete -c edgehub -n '__fish_seen_subcommand_from token' -l $option -x
end
for option in workdir env timeout memory cpu pids secret secret-file device reconnect \
	    network allow deny port resolver proxy git ref git-user write-back branch message \
	    image engine runtime container-network
	complete -c edgehub -n '__fish_seen_subcommand_from run' -l $option -x
end
complete -c edgehub -n '__fish_seen_subcommand_from run' -l git-token-file -r -F
complete -c edgehub -n '__fish_seen_subcommand_from run' -l bundle -r -F
complete -c edgehub -n '__fish_seen_subcommand_from run' -l public -d 'what is routed in public'
complete -c edgehub -n '__fish_seen_subcommand_from run' -l detach -d 'print the handle and return'
for option in for tap name address mac mtu id
	complete -c edgehub -n '__fish_seen_subcommand_from l2' -l $option -x
end
complete -c edgehub -n '__fish_seen_subcommand_from l2' -l unix -r -F
complete -c edgehub -n '__fish_seen_subcommand_from l2' -l offload
