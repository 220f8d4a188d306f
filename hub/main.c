/* edgehub: the control plane in one binary, server and CLI. */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/near.h"
#include "hub/cli.h"
#include "hub/cli_secret.h"
#include "hub/serve.h"
#include "version.h"

#define DATADIR_DEFAULT	"/var/lib/edgehub"

static const char help[] =
    "usage: edgehub [-jV] [-d DATADIR | -S SOCKET] COMMAND ...\n"
    "\n"
    "  serve [-v] [-d DATADIR] [-l ADDRESS:PORT] [-n NAME]... [-u URL] [-C CERT -K KEY] [-k DURATION]\n"
    "        [-x cloop] [-y cache]\n"
    "      the server. Default: 127.0.0.1:8443, " DATADIR_DEFAULT ". On the first start it makes a private CA and a\n"
    "      certificate for the host's name, localhost, 127.0.0.1, ::1 and each NAME. It prints its URL, the pin of its\n"
    "      key and the path of the CA. -u: URL that bundles name. -C, -K: certificate chain and key of your own.\n"
    "      -k: how long finished runs and their logs are kept, 720h unless given.\n"
    "      -x cloop: never select edgeward.1. -y cache: acknowledge logs from the page cache, not from disk (survives\n"
    "      a crash of edgehub, not a power cut).\n"
    "  token create [--name NAME] [--ttl DURATION] [--bundle] [--server URL]\n"
    "      an enrollment token for one device, on stdout only; 15m unless --ttl (24h at most). --bundle: with URL and\n"
    "      pin in one string.\n"
    "  token list | token revoke ID\n"
    "      all tokens, without their secrets; a revoked one is refused, and so is the device it has enrolled.\n"
    "  devices [--all]              devices, and with --all those that were revoked, too; the same with -j\n"
    "  run DEVICE [--workdir DIR] [--env K=V]... [--timeout DURATION] [--memory SIZE] [--cpu MILLIS] [--pids N]\n"
    "      [--disk-limit SIZE] [--overflow wait|wait-forever|drop]\n"
    "      [--secret NAME=@FILE]... [--secret-file NAME=@FILE]... [--device NAME]... [--detach] [--reconnect DURATION]\n"
    "      [--git URL] [--ref REF] [--git-user USER] [--git-token-file FILE] [--bundle FILE] [--write-back branch|bundle] [--branch cloop/NAME]\n"
    "      [--message TEXT]\n"
    "      [--network none|host|filtered] [--public] [--allow CIDR]... [--deny CIDR]... [--port N]... [--resolver ADDRESS[:PORT]]...\n"
    "      [--proxy ADDRESS:PORT] [--image IMAGE] [--engine docker|podman] [--runtime NAME] [--container-network NAME]\n"
    "      -- COMMAND [ARGUMENT ...]\n"
    "      runs it on the device, writes its output to stdout, returns its exit code. Goes on over cut links and a\n"
    "      restart of the hub (--reconnect: how long it waits for one, 120s), and says so when the device is away. Ctrl-C sends INT,\n"
    "      again TERM, again KILL; Ctrl-\\ leaves the run alone. The command is no shell line (sh -c 'a | b'), and its standard input is empty: cp brings\n"
    "      files, attach a terminal.\n"
    "      --detach prints the handle and returns. With --env the workload gets these variables (and a PATH) only.\n"
    "      --secret: the content of FILE (- is stdin) as variable NAME; --secret-file: as file NAME in the directory that\n"
    "      the variable SECRETS_DIR names, which only this workload sees. Both are masked in its output.\n"
    "      --device: what usb forward or l2 forward has forwarded to it under that name, and for no run yet.\n"
    "      --git: the work directory is a checkout of that https repository. --write-back: what the workload changed is\n"
    "      committed and pushed, or brought here; --ref must be a commit of 40 digits then. See edgehub help result.\n"
    "      --bundle: the work directory is the branch cloop/NAME in FILE (git bundle create FILE cloop/NAME), shipped with the start.\n"
    "      --network: what policy.conf gives unless one is named; filtered, or any of the others, reaches --allow (and with --public\n"
    "      what is routed in public) without --deny, on each --port, asks each --resolver, and one --proxy; nothing else.\n"
    "      --image: in a container of the device's engine (policy.conf, [containers] engine-socket); nothing is pulled.\n"
    "  result HANDLE [-o FILE]      what a run brought back, as JSON; -o: its bundle, for git fetch FILE BRANCH\n"
    "  cp [--no-wait] DEVICE:HANDLE/PATH FILE | cp [--no-wait] FILE DEVICE:HANDLE/PATH\n"
    "      brings a file of a run's work directory here, or one of this machine there (policy.conf, [work] files). PATH is within\n"
    "      that directory; the run may have ended. Checked by SHA-256, put in its place when all is there, sparse where the\n"
    "      original is. A lost link or device is waited for, and what was begun is gone on with; --no-wait: it is not.\n"
    "  l2 forward DEVICE [--for HANDLE] (--tap NAME | --unix PATH) [--name eth1] [--address A/P]... [--mac M] [--mtu N]\n"
    "      [--offload] [--id NAME]\n"
    "      joins an interface of this machine (made when it is not there, and gone afterwards), or whatever listens at the\n"
    "      stream socket PATH, to an interface in the network of the run HANDLE, until Ctrl-C or the end of the run.\n"
    "      --address: of the run's interface, at most four. Without --for it waits for a start that names it.\n"
    "  attach HANDLE [--read-only | --watch[=SESSION]] [-T] [-- COMMAND [ARGUMENT ...]]\n"
    "      a process inside the run HANDLE, a shell unless COMMAND is given, with a terminal if this is one (-T: without).\n"
    "      It has the run's directory, limits and sandbox, and of its variables PATH and HOME. --read-only: it reads nothing.\n"
    "      --watch: looks on at the session somebody has open there. A lost link is waited for, and the session goes on.\n"
    "      At the beginning of a line ~. leaves, and what was started ends; ~^Z suspends. The device must permit it\n"
    "      (policy.conf, [work] attach). The exit code is the command's; 255: not known.\n"
    "  shell DEVICE [--workdir DIR] [--timeout DURATION] [-T] [-- COMMAND [ARGUMENT ...]]\n"
    "      the same as attach, in a run of its own, which ends with it (policy.conf, [work] attach).\n"
    "  logs HANDLE [-f|--follow] [--from N]  the log from offset N on; -f until the run ends\n"
    "  logs verify HANDLE\n"
    "      reads the stored log again, against the device's digest: verified, mismatch (code 1); or code 3: gap (bytes are\n"
    "      missing), lost (the device lost the run, so the log ends where it was), unverified (not ended, or no digest).\n"
    "  secret revoke HANDLE [NAME] [--kill]\n"
    "      takes the secrets of a run, or one of them, away from it: files vanish. What it has in variables it keeps, unless\n"
    "      --kill ends it.\n"
    "  secret refresh HANDLE NAME=@FILE ...\n"
    "      gives secret files of a running run a new content, at one stroke.\n"
    "  signal HANDLE [INT|TERM|KILL]\n"
    "  usb forward DEVICE --busid B [--server HOST:3240] [--for HANDLE] [--name NAME] [--match VVVV:PPPP] [--retry S]\n"
    "      lends a USB device that a usbipd exports (usbip bind) to the run HANDLE on that device, until Ctrl-C or the end of\n"
    "      run, link or usbipd. Prints the nodes as the run sees them. Without --for it waits for a start that names it.\n"
    "      --match: only if it is that vendor and product. A device that goes, or whose link drops, is asked for again for S\n"
    "      seconds (60); --retry 0: never.\n"
    "  usb list                     what is forwarded now\n"
    "  harness list DEVICE | harness install DEVICE NAME\n"
    "      programs that hubs ask for by name (claude, codex, ...) and the device has; has it install one by its vendor's own\n"
    "      installer, which the device must permit (policy.conf, [harnesses] install). All its workloads find it then.\n"
    "  upgrade DEVICE [--to TARGET | --release FILE] [--settle SECONDS] [--no-wait]\n"
    "      has the device upgrade itself, on trial, and waits for what becomes of it. TARGET: latest (default), a version, or\n"
    "      edge:COMMIT, which the device fetches from its own mirror. --release: sends it this release file, or the one in this\n"
    "      directory. The device decides: its keys, its channel, its policy (policy.conf, [upgrade] remote). --no-wait: until\n"
    "      the device has accepted it.\n"
    "  services DEVICE              what the device serves: declared in its edgeward.conf, and found on its loopback\n"
    "  proxy DEVICE --to SERVICE [--listen 127.0.0.1:PORT] [--host NAME] [--tls-insecure] [--any-address]\n"
    "      makes a service of the device a web page of this machine, websockets included, until Ctrl-C, and prints its address.\n"
    "      SERVICE: a name that `services` shows, a port of the device's loopback, or http://HOST:PORT as the device sees it.\n"
    "      The device decides (policy.conf, [services]). --listen: port 0, which is the default, takes a free one; beyond loopback\n"
    "      only with --any-address, and then everybody who reaches the port is let in. --host: another name in the browser.\n"
    "  ssh-proxy DEVICE             joins stdin and stdout to the device's sshd, where it permits: for ssh's ProxyCommand\n"
    "  revoke DEVICE                ends its session, refuses its credential for good; its open runs count as lost\n"
    "  runs [--open] [--max N] [DEVICE]\n"
    "      runs, the newest first, with state and exit code; --open: those that have not ended. away: so is their device.\n"
    "  status                       the hub itself: uptime, devices, runs, disk\n"
    "  help [COMMAND]               this text, or its part about one command\n"
    "\n"
    "First steps: `edgehub serve` in one terminal; in another `edgehub token create --name NAME --bundle`, which goes to the\n"
    "device (edgectl enroll --bundle-file -) with the file that `serve` names as ca (for [hub] ca-file in its edgeward.conf); then\n"
    "`edgehub devices` and `edgehub run NAME -- uname -a`.\n"
    "\n"
    "-j prints JSON, also behind the command (not of run, attach and shell). DEVICE is a name or an id, HANDLE a run's handle; a unique beginning of either will do.\n"
    "\n"
    "Exit codes: 0 done, 1 failed, 2 usage, 3 not verifiable (logs verify), 4 nobody answers on the socket, 5 permission denied.\n"
    "upgrade: 0 installed, or that release runs already; 1 refused or failed; 3 rolled back.\n"
    "run: the workload's own code; 128 + signal when one ended it; 120 it ended well, but its write-back failed; 121 left: the hub did not come back, or Ctrl-\\,\n"
    "122 the device lost the run, 123 the device refused it, 124 ended at its timeout, 125 not started (no such device,\n"
    "not connected, wrong usage, no hub).\n";

static int unknown_command(const char *name);

/* The lines of help from the one that begins with the command to the next command or the end of the list. */
static int
cmd_help(int argc, char *argv[])
{
	bool on = false, any = false;
	size_t len = argc > 1 ? strlen(argv[1]) : 0;

	if (argc < 2)
		return fputs(help, stdout) >= 0 ? CLI_OK : CLI_FAILED;
	for (const char *line = help, *end; *line != '\0' && *line != '-'; line = end) {
		end = strchr(line, '\n') + 1;
		if (strncmp(line, "  ", 2) == 0 && line[2] != ' ')
			on = strncmp(line + 2, argv[1], len) == 0 && (line[2 + len] == ' ' || line[2 + len] == '\n');
		else if (*line == '\n')
			on = false;
		if (on)
			printf("%.*s", (int)(end - line), line);
		any = any || on;
	}
	return any ? CLI_OK : unknown_command(argv[1]);
}

static const struct command {
	const char *name;
	int (*run)(struct cli *cli, int argc, char *argv[]);
} commands[] = {
	{ "token", cli_token }, { "devices", cli_devices }, { "run", cli_run }, { "logs", cli_logs }, { "result", cli_result }, { "cp", cli_cp },
	{ "secret", cli_secret }, { "harness", cli_harness },
	{ "signal", cli_signal }, { "revoke", cli_revoke }, { "l2", cli_l2 }, { "runs", cli_runs }, { "usb", cli_usb },
	{ "attach", cli_attach }, { "shell", cli_shell }, { "upgrade", cli_upgrade }, { "services", cli_services }, { "proxy", cli_proxy }, { "ssh-proxy", cli_ssh_proxy }, { "status", cli_status },
};

static int
unknown_command(const char *name)
{
	const char *names[sizeof(commands) / sizeof(commands[0]) + 2] = { "serve", "help" }, *near;
	size_t n = 2;

	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		names[n++] = commands[i].name;
	near = near_word(name, names, n);
	if (near != NULL)
		return cli_fail(CLI_USAGE, "no command \"%s\", did you mean \"%s\"? edgehub --help lists them", name, near);
	return cli_fail(CLI_USAGE, "no command \"%s\"; edgehub --help lists them", name);
}

/* Behind what the command itself had to say; the words are those of its first lines in help, up to its description. */
static void
suggest(int argc, char *argv[])
{
	char words[2048] = "", typed[NEAR_SIZE], meant[NEAR_SIZE], clean[128];
	const char *operand;
	size_t len = strlen(argv[0]), n = 0;
	bool on = false;

	for (const char *line = help, *end; *line != '\0'; line = end) {
		end = strchr(line, '\n') + 1;
		if (strncmp(line, "  ", 2) == 0 && line[2] != ' ')
			on = strncmp(line + 2, argv[0], len) == 0 && line[2 + len] == ' ';
		else if (strncmp(line, "      ", 6) != 0 || (line[6] != '[' && line[6] != '-'))
			on = false;
		if (on && n + (size_t)(end - line) < sizeof(words)) {
			memcpy(words + n, line, (size_t)(end - line));
			n += (size_t)(end - line);
			words[n] = '\0';
		}
	}
	operand = near_operand(words, argc - 1, argv + 1);
	if (near_usage(words, argc - 1, argv + 1, typed, meant))
		fprintf(stderr, "edgehub: \"%s\": did you mean \"%s\"? edgehub help %s tells more\n", typed, meant, argv[0]);
	else if (operand != NULL)
		fprintf(stderr, "edgehub: \"%s\" begins like an option; if it is none, put -- before it\n", cli_text(clean, sizeof(clean), operand));
}

int
main(int argc, char *argv[])
{
	static const struct option options[] = {
		{ "help", no_argument, NULL, 'h' }, { "version", no_argument, NULL, 'V' }, { "json", no_argument, NULL, 'j' },
		{ 0 },
	};
	const char *datadir = DATADIR_DEFAULT, *sock = NULL;
	struct cli cli = { .answer_fd = -1 };
	char path[4096];
	int opt, r = -1;

	log_init("edgehub", LOG_LEVEL_INFO);
	while ((opt = getopt_long(argc, argv, "+d:hjS:V", options, NULL)) != -1) {
		if (opt == 'd')
			datadir = optarg;
		else if (opt == 'S')
			sock = optarg;
		else if (opt == 'j')
			cli.json = true;
		else if (opt == 'V')
			return printf("edgehub %s\n", EDGEWARD_VERSION) > 0 ? 0 : 1;
		else if (opt == 'h')
			return fputs(help, stdout) >= 0 ? 0 : 1;
		else
			return cli_fail(CLI_USAGE, "edgehub --help tells how it is used");
	}
	argc -= optind;
	argv += optind;
	if (argc < 1) {
		fputs(help, stderr);
		return CLI_USAGE;
	}
	if (strcmp(argv[0], "help") == 0)
		return cmd_help(argc, argv);
	if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
		return cmd_help(argc, (char *[]){ "help", argv[0], NULL });
	/* What these run has options of its own. */
	if (strcmp(argv[0], "run") != 0 && strcmp(argv[0], "attach") != 0 && strcmp(argv[0], "shell") != 0 && near_take_json(&argc, argv))
		cli.json = true;
	if (strcmp(argv[0], "serve") == 0)
		return serve_main(argc, argv, datadir, sock);
	snprintf(path, sizeof(path), "%s/" ADMIN_SOCK, datadir);
	cli.sock = sock != NULL ? sock : path;
	optind = 0;
	opterr = 0;	/* suggest() says it, by the name of this program */
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]) && r < 0; i++)
		if (strcmp(commands[i].name, argv[0]) == 0)
			r = commands[i].run(&cli, argc, argv);
	if (r < 0)
		r = unknown_command(argv[0]);
	else if (r == CLI_USAGE || (r == RUN_EXIT_NOT_STARTED && strcmp(argv[0], "run") == 0))
		suggest(argc, argv);
	cli_close(&cli);
	free(cli.answer);
	loop_free(cli.loop);
	if (fflush(stdout) != 0 && r == 0)
		r = CLI_FAILED;
	return r;
}
