/* What the tests of a whole connection share: a loop with a clock that can be moved, a fake hub, an environment, a log. */
#ifndef EDGEWARD_NETRIG_H
#define EDGEWARD_NETRIG_H

#include <stdbool.h>

#include "connectd/hubconn.h"
#include "connectd/netenv.h"
#include "tests/unit/fakedns.h"
#include "tests/unit/fakehub.h"
#include "tests/unit/testcert.h"
#include "tests/unit/unit.h"

#define NETRIG_TIMEOUT	1000
#define NETRIG_WRITE	4000

struct netrig {
	struct loop *loop;
	struct netenv *env;
	struct fakehub hub;
	struct testca *ca;
	SSL_CTX *tls;			/* right name, right authority */
	SSL_CTX *stranger;		/* right name, no authority we know */
	uint8_t pin[32];
	char ca_file[64];
	/* One attempt and what it reported. */
	struct hubconn *conn;
	struct hubconn_params params;
	char url[128], proxy[128];
	unsigned opened, ended, texts, binaries, writables, stages;
	bool edgeward1;
	char peer[128];
	enum hubconn_stage stage;
	struct hubconn_end end;
	char last[256];
	size_t last_len;
	/* Called in each callback with its name; may free rig->conn. */
	void (*hook)(struct netrig *rig, const char *callback);
};

void netrig_init(struct netrig *rig);
void netrig_done(struct netrig *rig);

/* A test program's group around rig, and around dns too unless it is NULL: what main() returns. */
int netrig_run(struct netrig *rig, struct fakedns *dns, const struct CMUnitTest *tests, size_t n);

/* scheme://host:port/path of the fake hub into rig->url, defaults into rig->params, nothing counted. */
void netrig_prepare(struct netrig *rig, const char *scheme, const char *host);
/* Result of hubconn_start(). */
int netrig_start(struct netrig *rig);
void netrig_cancel(struct netrig *rig);

/* Turns until *what is true, at most real_ms of real time. Returns *what. */
bool netrig_until(struct netrig *rig, const bool *what, int real_ms);
bool netrig_until_n(struct netrig *rig, const unsigned *what, int real_ms);
/* Turns for about ms of real time. */
void netrig_turns(struct netrig *rig, int ms);

/* Moves the loop's clock. */
void netrig_advance(int64_t ms);
/* Wall clock of certificate checks; 0 = the real one. */
void netrig_set_wall(int64_t seconds);

/* Bytes in use on the heap. */
size_t netrig_heap(void);
unsigned netrig_fds(void);

#endif
