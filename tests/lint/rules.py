"""The rules of lint.py that are data. A reason stands beside each exception."""

# Which headers in quotes a folder may include. A trailing slash means everything below; version.h is the build's.
PROCESS_COMMON = ["common/", "proto/ipc/"]
INCLUDES = {
    # What root runs stays small and knows nothing of configuration or hub formats.
    "privhelper": ["privhelper/", "proto/ipc/", *[f"common/{n}.h" for n in (
        "ipc", "log", "cleanup", "fdutil", "drop", "sandbox", "monotime",
        "loop", "closer",     # under ipc
        "notify",     # READY=1
        "parse",      # its two numbers on the command line
        "audit",      # the record of its verbs
        "pool",       # a number range on the command line
        "pace", "strikes",
        "tap",        # interfaces of workloads
        "hcd", "vhci", "usbauth", "usbdesc", "usbgrant", "usbledger")]],     # USB
    # Root's one-shot: its parsers are the pure ones of proto/release; common/ipc and the records of the daemons are not among them.
    "privupgrade": ["privupgrade/", "proto/release/", *[f"common/{n}.h" for n in ("log", "cleanup", "fdutil", "monotime", "parse", "runprog")]],
    # Root's one-shot: one key of edgeward.conf, which is root's.
    "privaccount": ["privaccount/", *[f"common/{n}.h" for n in ("log", "cleanup", "fdutil", "conf", "idranges", "pool", "runprog")]],
    # The launcher is an executable of its own: its compromise equals root.
    "workerd/launcher": ["workerd/launcher/", *PROCESS_COMMON],
    "workerd": ["workerd/", *PROCESS_COMMON],
    "connectd": ["connectd/", "common/", "proto/"],
    # policy test reads a start as connectd does.
    "edgectl": ["edgectl/", *PROCESS_COMMON, "proto/release/", "proto/hub/json.h", "proto/hub/start.h", "proto/hub/base64.h", "proto/hub/http.h"],
    "hub": ["hub/", "common/", "proto/"],
    "packaging": ["packaging/", "common/"],
    "common": ["common/", "proto/ipc/"],
    "proto/ipc": ["proto/ipc/"],
    "proto/hub": ["proto/hub/", "proto/ipc/"],
    "proto/release": ["proto/release/", "proto/ipc/names.h", "proto/hub/base64.h"],
}

# Libraries an executable may be linked with, besides libc and the C runtime. Path in the build directory.
NEEDED = {
    "privhelper/privhelper": {"libcap", "libseccomp", "libmd"},
    "privupgrade/privupgrade": {"libcrypto"},
    "privupgrade/privtrial": {"libcap"},
    "privaccount/privaccount": {"libcap", "libinih"},     # libcap: by common/runprog
    "workerd/workerd": {"libcap", "libseccomp", "libinih", "libxxhash"},
    "workerd/launcher/launcher": set(),
    "connectd/connectd": {"libcap", "libseccomp", "libinih", "libxxhash", "libssl", "libcrypto", "libwslay", "libyajl", "libcares"},
    "connectd/netprobe": {"libcap", "libseccomp", "libinih", "libxxhash", "libssl", "libcrypto", "libyajl", "libcares"},
    "edgectl/edgectl": {"libyajl", "libinih", "libcap", "libxxhash", "libmd"},     # libcap: by common/runprog, which can also run a program as another user
    "hub/edgehub": {"libcap", "libseccomp", "libssl", "libcrypto", "libwslay", "libyajl", "libsqlite3", "libxxhash"},
    "packaging/run-foreground": {"libcap", "libinih"},
}
RUNTIME = {"libc", "libm", "ld-linux-x86-64", "ld-linux-aarch64", "libgcc_s", "libpthread", "libdl", "librt",
           "libasan", "libubsan", "libtsan", "liblsan"}

# Library: its name in README.md, Debian's package to build with, meson.build's name.
LIBRARIES = {
    "libssl": ("OpenSSL 3", "libssl-dev", "openssl"), "libcrypto": ("OpenSSL 3", "libssl-dev", "openssl"), "libwslay": ("wslay", "libwslay-dev", "wslay"),
    "libyajl": ("yajl", "libyajl-dev", "yajl"), "libcares": ("c-ares", "libc-ares-dev", "libcares"), "libinih": ("inih", "libinih-dev", "inih"),
    "libcap": ("libcap", "libcap-dev", "libcap"), "libseccomp": ("libseccomp", "libseccomp-dev", "libseccomp"),
    "libxxhash": ("libxxhash", "libxxhash-dev", "libxxhash"), "libmd": ("libmd", "libmd-dev", "libmd"), "libsqlite3": ("SQLite", "libsqlite3-dev", "sqlite3"),
}
# Packages that README.md calls by another name.
PROGRAMS = {"ca-certificates": "CA certificates", "nftables": "nft", "passt": "pasta"}

# Lines. Aims stand in CONTRIBUTING.md; these are the bounds.
FILE_MAX = 600
HEADER_MAX = 250
FUNCTION_MAX = 80
MAIN_MAX = 100
# Of .c in a folder: the bound, and the files that do not count.
FOLDER_MAX = {
    "privhelper": (800, []),
    "privaccount": (200, []),
    # main.c and held.c are the launcher; handover.c is its own upgrade, between two workerds; the others run in its child, after
    # the ids were given up, and confine.c once at start
    "workerd/launcher": (800, ["workinit.c", "carrier.c", "attached.c", "initlink.c", "confine.c", "filter.c", "hide.c", "view.c", "netns.c", "ruleset.c", "secretfs.c"]),
}
# Root's one-shots, which share a folder and a core: .c files each is made of. Every file of the folder is in one of them.
EXECUTABLE_MAX = {
    "privupgrade/privupgrade": (900, ["main.c", "inbox.c", "stage.c", "verify.c", "setup.c", "store.c"]),
    "privupgrade/privtrial": (900, ["privtrial.c", "probe.c", "prune.c", "selftest.c", "trial.c", "units.c", "setup.c", "store.c"]),
}
MEDIAN_MAX = 16
P95_MAX = 45

# Calls nobody makes, with the reason; and those that have their one place.
FORBIDDEN = [
    (r"\bgoto\b", "ownership is by scope (common/cleanup.h)", []),
    (r"\b(atoi|atol|atoll|strtol|strtoll|strtoul|strtoull|strtod)\s*\(", "common/parse.h reads numbers", []),
    (r"\b(sprintf|vsprintf|strcpy|strcat|gets|strtok|alloca)\s*\(", "unbounded", []),
    (r"\b(system|popen)\s*\(", "no shell", []),
    (r"\b(getaddrinfo|gethostbyname)\s*\(", "cannot run under a tight filter; c-ares does it", [
        "hub/listen.c",             # edgehub's own listening address, once, at start
        "hub/cli_usb.c",            # the CLI, which has no filter
    ]),
    (r"\b(gettimeofday|ftime)\s*\(|(?<![_\w.>])time\s*\(", "time has a type: common/monotime.h", []),
    (r"\bCLOCK_REALTIME\b", "every deadline is on CLOCK_BOOTTIME", [
        "common/monotime.c",        # the one place that reads the wall clock
        "connectd/netwatch.c",      # TFD_TIMER_CANCEL_ON_SET: to hear of a set clock
    ]),
    (r"(?<![\w.>])connect\s*\(", "one file dials; the others are local sockets", [
        "connectd/svcconn.c",       # a declared unix socket; and a datagram socket that sends nothing: is this address ours
        "hub/cli_l2.c",             # the CLI joins a socket that the operator named
        "hub/cli_usb.c",            # the CLI dials a usbipd for the operator who named it
        "connectd/race.c", "common/ipc.c", "common/notify.c",
        "workerd/launcher/netns.c",  # tries, in the workload's own namespace, what must not be reached
        "edgectl/probe.c"]),        # whether the hub's address answers, during a trial
    (r"\b(FIXME|XXX|TODO)\b", "no unfinished business", []),
]
# What root runs after it was started as root: whole folders, and the files of common/ that no other program calls.
ROOT = ["privhelper/", "privupgrade/", "privaccount/"]
ROOT_COMMON = [f"common/{n}.c" for n in ("hcd", "usbgrant", "usbledger", "usbauth", "usbdesc", "tap", "netns", "closer", "idranges")]
# A root-run program never changes owner, mode or content by a path others can change (B89): a descriptor it has checked, or a name in a
# directory it holds. Owner and mode by name not even there.
FORBIDDEN_ROOT = [
    (r"\b(l?chown|l?chmod|l?(set|remove)xattr|l?utimes?|mount|umount2?|unlink|rmdir|remove|rename|link|symlink|mkdir|mknod|mkfifo|truncate)\s*\(",
     "by descriptor only", []),
    (r"\b(fchownat|fchmodat2?|utimensat)\s*\(", "owner and mode by descriptor only", [
        "common/usbgrant.c",        # the node it has just made, which is never opened: in a directory that root alone can write
    ]),
]
FORBIDDEN_PRIVHELPER = [
    (r"\bexec[lv]\w*\s*\(|\bfork\s*\(", "executes nothing", []),
    # At start common/ opens ledger, record and /dev/edgeward. After that common/hcd.c and usbgrant.c alone, in sysfs.
    (r"(?<![\w.])open(at2?)?\s*\(", "opens nothing itself", []),
]
# Library code never logs: the handler that knows the context does, once.
FORBIDDEN_LIBRARY = [
    (r"\b(log_(debug|info|warn|error)|fatal)\s*\(", "library code returns -errno", ["common/log.c", "common/log.h"]),
    (r"\b(printf|puts|perror|err|warn)x?\s*\(", "library code prints nothing", []),
]
FORBIDDEN_PROTO_IPC = [(r"\b(malloc|calloc|realloc|free)\s*\(", "proto/ipc allocates nothing", [])]

# B59: a descriptor is born close-on-exec. Calls that make one, and the word that must stand in the same statement.
CLOEXEC = {
    "open": "O_CLOEXEC", "openat": "O_CLOEXEC", "socket": "SOCK_CLOEXEC", "socketpair": "SOCK_CLOEXEC", "accept4": "SOCK_CLOEXEC",
    "epoll_create1": "EPOLL_CLOEXEC", "timerfd_create": "TFD_CLOEXEC", "signalfd": "SFD_CLOEXEC", "eventfd": "EFD_CLOEXEC",
    "inotify_init1": "IN_CLOEXEC", "memfd_create": "MFD_CLOEXEC", "pipe2": "O_CLOEXEC", "recvmsg": "MSG_CMSG_CLOEXEC",
    "dup3": "O_CLOEXEC",
}
NEVER_CLOEXEC = ["accept", "dup", "pipe", "epoll_create", "inotify_init", "creat"]

# Paths of a developer's machine have no place in a repository.
MACHINE = r"/home/[a-z]|(?<![a-z])/root/[a-z]+/"

# systemd-analyze security, at most. workerd's unit holds back what workloads would inherit; its reasons stand in the unit.
EXPOSURE = {
    "edgeward-connectd.service": 1.5, "edgeward-privhelper.service": 2.5, "edgeward-upgrade.service": 2.5, "edgeward-upgrade-boot.service": 2.5,
    "edgeward-account.service": 2.5, "edgeward-metrics.service": 1.5, "edgehub.service": 2.0, "edgeward-workerd.service": 6.5,
}
