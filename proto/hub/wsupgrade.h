/*
 * The two heads that turn HTTP into a WebSocket (RFC 6455 section 4), seen from both ends. SHA-1 comes from the caller,
 * so that this library needs no TLS library.
 */
#ifndef EDGEWARD_PROTO_HUB_WSUPGRADE_H
#define EDGEWARD_PROTO_HUB_WSUPGRADE_H

#include "proto/hub/http.h"

#define WSUPGRADE_KEY_SIZE	25	/* base64 of 16 random bytes, NUL */
#define WSUPGRADE_ACCEPT_SIZE	29	/* base64 of 20 bytes, NUL */

/* Digest of len bytes. */
typedef void (*wsupgrade_sha1)(const void *data, size_t len, uint8_t ret_digest[20]);

/* Sec-WebSocket-Accept that belongs to a key. key must be wsupgrade_key_ok(). */
void wsupgrade_accept(const char *key, wsupgrade_sha1 sha1, char ret_accept[WSUPGRADE_ACCEPT_SIZE]);

/* True if it is the canonical base64 of 16 bytes. */
bool wsupgrade_key_ok(const char *key);

/*
 * Server: is this complete request head a WebSocket upgrade? 0, or the HTTP status of the refusal: 400, 405 (not GET),
 * 426 (no upgrade, or another version than 13). Target, Host, Origin and Authorization are left to the caller.
 */
int wsupgrade_check_request(const struct http_head *head);

/*
 * Client: does this complete response head with status 101 answer our key? offered is the one subprotocol we offered,
 * or NULL. *ret_selected says whether it was selected. -EBADMSG otherwise: wrong accept, an extension or a subprotocol
 * nobody offered, a body.
 */
int wsupgrade_check_response(const struct http_head *head, const char *key, wsupgrade_sha1 sha1, const char *offered,
    bool *ret_selected);

#endif
