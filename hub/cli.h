/* The CLI's side of the admin socket. */
#ifndef EDGEWARD_HUB_CLI_H
#define EDGEWARD_HUB_CLI_H

#include "common/ipc.h"
#include "hub/admin.h"
#include "proto/hub/json.h"

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_UNPROVEN = 3, CLI_NOBODY = 4, CLI_DENIED = 5 };

struct cli {
	const char *sock;
	bool json;
	struct loop *loop;
	struct ipc_chan chan;
	bool up;			/* connected and greeted */
	int connect_err;
	/* The answer waited for. */
	uint32_t want;
	bool answered;
	int status;
	uint8_t *answer;
	size_t answer_len;
	int answer_fd;			/* that came with it, -1 = none */
	/* An answer that nobody waits for; NULL: its sentence is printed. */
	void (*other)(struct cli *cli, const struct ipc_msg *msg, void *ctx);
	/* Events; 0 or -errno (ends the channel). */
	int (*event)(struct cli *cli, const struct ipc_msg *msg, void *ctx);
	void *ctx;
};

/* Connects and greets. 0 or -errno; says nothing. */
int cli_open(struct cli *cli);
void cli_close(struct cli *cli);

/* Sends a request and waits for its answer; events are delivered meanwhile. -errno when the hub is gone, else 0: look at
 * cli->status and cli->answer. */
int cli_call(struct cli *cli, uint16_t type, const void *data, size_t len, const int *fds, unsigned nfds);

/* cli_open() + cli_call(); on failure prints one line and returns the exit code, else 0. */
int cli_request(struct cli *cli, uint16_t type, const void *data, size_t len);

/* One line about why the socket does not answer; the exit code for it. */
int cli_say_unreachable(const struct cli *cli, int err);

/* "edgehub: ..." on stderr; returns code. */
int cli_fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* "usage: edgehub LINE"; returns CLI_USAGE. */
int cli_usage(const char *line);

/* Copies an answer of a fixed size; false when the hub speaks another version. */
bool cli_answer(const struct cli *cli, void *ret_v, size_t size);

/* Prints JSON from w and a newline. */
void cli_print_json(const struct json_w *w);

/* For what only does something: {"ok":true} with -j when code is CLI_OK, else nothing. Returns code. */
int cli_done(const struct cli *cli, int code);
/* The fields of a run inside an open object. */
void cli_json_run(struct json_w *w, const struct admin_run *run);
/* "12 s ago" or a date; "-" for 0. */
const char *cli_time(char buf[32], int64_t ns);
/* RFC 3339 or null. */
void cli_json_time(struct json_w *w, const char *key, int64_t ns);
/* A copy for a terminal: control characters become '?'. */
const char *cli_text(char *buf, size_t size, const char *s);

/* struct run_info fields that run_exit_code() looks at. */
int cli_exit_code(const struct admin_run *run);

/* Subcommands: argv[0] is their name. */
int cli_token(struct cli *cli, int argc, char *argv[]);
int cli_devices(struct cli *cli, int argc, char *argv[]);
int cli_runs(struct cli *cli, int argc, char *argv[]);
int cli_status(struct cli *cli, int argc, char *argv[]);
int cli_signal(struct cli *cli, int argc, char *argv[]);
int cli_revoke(struct cli *cli, int argc, char *argv[]);
int cli_usb(struct cli *cli, int argc, char *argv[]);
int cli_harness(struct cli *cli, int argc, char *argv[]);
int cli_upgrade(struct cli *cli, int argc, char *argv[]);
int cli_run(struct cli *cli, int argc, char *argv[]);
int cli_proxy(struct cli *cli, int argc, char *argv[]);
int cli_services(struct cli *cli, int argc, char *argv[]);
int cli_ssh_proxy(struct cli *cli, int argc, char *argv[]);
int cli_attach(struct cli *cli, int argc, char *argv[]);
int cli_shell(struct cli *cli, int argc, char *argv[]);
int cli_cp(struct cli *cli, int argc, char *argv[]);
int cli_l2(struct cli *cli, int argc, char *argv[]);
int cli_logs(struct cli *cli, int argc, char *argv[]);
int cli_result(struct cli *cli, int argc, char *argv[]);
/* Behind "logs". */
int cli_verify(struct cli *cli, int argc, char *argv[]);

#endif
