/* The HTTP exchange that opens the WebSocket: our request, the hub's answer, and what an answer that is no upgrade means. */
#ifndef EDGEWARD_CONNECTD_UPGRADE_H
#define EDGEWARD_CONNECTD_UPGRADE_H

#include "connectd/hubend.h"
#include "connectd/outq.h"
#include "connectd/url.h"
#include "proto/hub/wsupgrade.h"

#define UPGRADE_BEARER_MAX	4096u

struct upgrade {
	char key[WSUPGRADE_KEY_SIZE];
	bool offered;
	struct http_head head;
};

/* True if it can stand in a header: visible ASCII, at most UPGRADE_BEARER_MAX. */
bool upgrade_bearer_ok(const char *bearer);

/* Appends the request to out. bearer "" = none. -ENOMEM, -EIO. */
int upgrade_start(struct upgrade *up, const struct url *url, const char *bearer, bool offer_edgeward1, struct outq *out);

/*
 * Takes the answer as it comes. 1 = upgraded: *ret_edgeward1 is set and *ret_used says where the first frame begins;
 * 0 = more is needed; -EPROTO = end is filled.
 */
int upgrade_feed(struct upgrade *up, const uint8_t *data, size_t len, size_t *ret_used, bool *ret_edgeward1,
    struct hubconn_end *end);

/* The hub closed before its answer was complete. */
void upgrade_eof(const struct upgrade *up, struct hubconn_end *end);

#endif
