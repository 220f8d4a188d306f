/*
 * TLS by OpenSSL. The chain and the host name are always verified; there is no switch against it. Pins come on top.
 *
 * Trust is one file, if given, plus the system's: its hashed directory is looked up when a root is needed, which costs
 * no memory and follows updates; a bundle is loaded only where there is no such directory.
 */
#ifndef EDGEWARD_CONNECTD_TLS_H
#define EDGEWARD_CONNECTD_TLS_H

#include <stdbool.h>
#include <stdint.h>

#include "connectd/hubend.h"
#include "connectd/pin.h"
#include "connectd/url.h"

struct tls_trust;
struct ssl_st;
struct transport;

/* ca_file "" = the system's trust only. -EINVAL or -ENOMEM with err filled. */
int tls_trust_new(const char *ca_file, struct tls_trust **ret_trust, char err[200]);
void tls_trust_free(struct tls_trust *trust);

/* The time certificates are checked at: the later one of the clock and the floor, in seconds. */
int64_t tls_check_time(int64_t wall_ns, int64_t floor_ns);

/* A client connection to the host of url over the connected, plain transport t. -ENOMEM. */
int tls_start(struct transport *t, const struct tls_trust *trust, const struct url *url, int64_t floor_ns);

/* Goes on with the handshake. 1 = done, 0 = waits for the peer or for room, negative = failed: tls_why(). */
int tls_handshake(struct transport *t);

/* OpenSSL's callback: judges nothing, and keeps a certificate that is for another name, for tls_why(). */
struct x509_store_ctx_st;
int tls_on_verify(int good, struct x509_store_ctx_st *ctx);

/* Whose certificate it is, and where its CA belongs. */
enum tls_peer { TLS_HUB, TLS_SERVICE };

/* Fills end from the failed handshake err. floor_ns as above, for the sentence about dates. */
void tls_why(const struct transport *t, int err, enum tls_peer peer, const struct url *url, int64_t floor_ns, struct hubconn_end *end);

/* After the handshake: 0, or -EPERM with end filled when the leaf's key is not one of the pins. */
int tls_check_pins(const struct transport *t, const struct pinset *pins, struct hubconn_end *end);

/* For wsupgrade.h. */
void tls_sha1(const void *data, size_t len, uint8_t ret_digest[20]);

#endif
