/*
 * What devices bring back from workspaces (reference cloop.md 5.9): beside the logs, "b.HANDLE" is the bundle and "r.HANDLE" the result as
 * JSON, which is there only when everything it says was checked.
 */
#ifndef EDGEWARD_HUB_RESULT_H
#define EDGEWARD_HUB_RESULT_H

#include "hub/client.h"
#include "hub/run.h"

#define RESULT_MAX	8192u	/* bytes of JSON */
#define RESULT_NAME	80u

/* The file beside a run's log that this prefix says. */
void result_name(char name[RESULT_NAME], const char *prefix, const char *handle);

/* The frames result_chunk and result. */
void result_chunk(struct session *s, const struct frame *f);
void result_take(struct session *s, const struct frame *f);

/* The run is removed. */
void result_drop(struct hub *hub, const char *handle);

/* ADMIN_REQ_RESULT: the JSON, and the bundle if there is one. */
int client_result(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);

#endif
