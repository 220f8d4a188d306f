# fish completion for edgectl(8)

function __edgectl_handles
	edgectl workloads 2>/dev/null | awk 'NR > 1 { print $1 "\t" $2 }'
end

function __edgectl_first
	not __fish_seen_subcommand_from status workloads top events metrics logs signal attach drain undrain devices policy reconnect enroll upgrade probe audit doctor support version help
end

complete -c edgectl -f
complete -c edgectl -n __edgectl_first -s j -d 'print JSON'
complete -c edgectl -n __edgectl_first -s r -r -a '(__fish_complete_directories)' -d 'directory of the sockets'
complete -c edgectl -n __edgectl_first -s V -d 'version'
complete -c edgectl -n __edgectl_first -l watch -d 'again and again'
complete -c edgectl -n __edgectl_first -a status -d 'processes, link, identity, work'
complete -c edgectl -n __edgectl_first -a workloads -d 'what runs here'
complete -c edgectl -n __edgectl_first -a top -d 'workloads with processor, memory and rate of output'
complete -c edgectl -n __edgectl_first -a events -d 'what happened here'
complete -c edgectl -n __edgectl_first -a metrics -d 'figures as OpenMetrics text'
complete -c edgectl -n __edgectl_first -a logs -d 'output of a workload'
complete -c edgectl -n __edgectl_first -a signal -d 'send a signal to a workload'
complete -c edgectl -n __edgectl_first -a attach -d 'a process inside a workload, with this terminal'
complete -c edgectl -n __edgectl_first -a drain -d 'take no new work'
complete -c edgectl -n __edgectl_first -a undrain -d 'take work again'
complete -c edgectl -n __edgectl_first -a devices -d 'forwarded devices and who leases them'
complete -c edgectl -n __edgectl_first -a policy -d 'what a hub may do here'
complete -c edgectl -n __edgectl_first -a reconnect -d 'dial the hub now'
complete -c edgectl -n __edgectl_first -a enroll -d 'give this device an identity at a hub'
complete -c edgectl -n __edgectl_first -a upgrade -d 'install a release, on trial'
complete -c edgectl -n __edgectl_first -a probe -d 'what privupgrade asks during a trial'
complete -c edgectl -n __edgectl_first -a audit -d "what was done with root's power"
complete -c edgectl -n __edgectl_first -a doctor -d 'every part of this installation in order'
complete -c edgectl -n __edgectl_first -a support -d 'a bundle to ask for help'
complete -c edgectl -n __edgectl_first -a version -d 'versions of edgectl and of what runs'
complete -c edgectl -n __edgectl_first -a help -d 'this list, or how a command is used'
complete -c edgectl -n '__fish_seen_subcommand_from status workloads devices policy metrics audit doctor' -l watch -d 'again and again'
complete -c edgectl -n '__fish_seen_subcommand_from top' -s n -x -d looks
complete -c edgectl -n '__fish_seen_subcommand_from top' -s d -x -d 'seconds between two looks'
complete -c edgectl -n '__fish_seen_subcommand_from events' -s f -d follow
complete -c edgectl -n '__fish_seen_subcommand_from metrics' -l listen -x -d 'serve them locally'
complete -c edgectl -n '__fish_seen_subcommand_from logs' -a '(__edgectl_handles)'
complete -c edgectl -n '__fish_seen_subcommand_from logs' -a verify -d 'its digest'
complete -c edgectl -n '__fish_seen_subcommand_from logs' -s f -d follow
complete -c edgectl -n '__fish_seen_subcommand_from logs' -l from -x -d offset
complete -c edgectl -n '__fish_seen_subcommand_from attach' -l read-only -d 'it reads nothing'
complete -c edgectl -n '__fish_seen_subcommand_from attach' -s T -d 'without a terminal'
complete -c edgectl -n '__fish_seen_subcommand_from attach' -a '(__edgectl_handles)'
complete -c edgectl -n '__fish_seen_subcommand_from signal' -a '(__edgectl_handles) INT TERM KILL'
complete -c edgectl -n '__fish_seen_subcommand_from policy' -a test -d 'would this start be taken'
complete -c edgectl -n '__fish_seen_subcommand_from policy' -a usb-classes -d 'USB classes that are let in'
complete -c edgectl -n '__fish_seen_subcommand_from enroll' -l token-file -r -F
complete -c edgectl -n '__fish_seen_subcommand_from enroll' -l bundle-file -r -F
complete -c edgectl -n '__fish_seen_subcommand_from enroll' -l url -x
complete -c edgectl -n '__fish_seen_subcommand_from enroll' -l pin -x
complete -c edgectl -n '__fish_seen_subcommand_from enroll' -l name -x
complete -c edgectl -n '__fish_seen_subcommand_from enroll' -l replace
complete -c edgectl -n '__fish_seen_subcommand_from audit' -a verify -d 'whether the record is whole'
complete -c edgectl -n '__fish_seen_subcommand_from audit' -s f -r -F
complete -c edgectl -n '__fish_seen_subcommand_from upgrade' -F
complete -c edgectl -n '__fish_seen_subcommand_from upgrade' -l check
complete -c edgectl -n '__fish_seen_subcommand_from upgrade' -l cancel
complete -c edgectl -n '__fish_seen_subcommand_from upgrade' -l history
complete -c edgectl -n '__fish_seen_subcommand_from upgrade' -l downgrade
complete -c edgectl -n '__fish_seen_subcommand_from upgrade' -l settle -x
complete -c edgectl -n '__fish_seen_subcommand_from upgrade' -l no-wait
complete -c edgectl -n '__fish_seen_subcommand_from upgrade' -l state -r -a '(__fish_complete_directories)'
complete -c edgectl -n '__fish_seen_subcommand_from doctor' -s c -r -F
complete -c edgectl -n '__fish_seen_subcommand_from doctor' -s p -r -F
complete -c edgectl -n '__fish_seen_subcommand_from doctor' -s s -r -a '(__fish_complete_directories)'
complete -c edgectl -n '__fish_seen_subcommand_from doctor' -s P -r -F
complete -c edgectl -n '__fish_seen_subcommand_from support' -a bundle -F
complete -c edgectl -n '__fish_seen_subcommand_from help' -a 'status workloads top events metrics logs signal attach drain undrain devices policy reconnect enroll upgrade probe audit doctor support version'
