/* The hub's keys: its private CA, the server certificate, the key of the tokens. All in the data directory. */
#ifndef EDGEWARD_HUB_PKI_H
#define EDGEWARD_HUB_PKI_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PKI_PIN_SIZE	64	/* "sha256:" + 44 + NUL fits */
#define PKI_NAMES_MAX	16

/*
 * Makes what is missing in dirfd: ca.key, ca.pem, server.key, server.pem (EC P-256, keys 0600, certificates 0644).
 * The server certificate is made anew, with the same key so that the pin stays, when it ends within a year or lacks one
 * of the names; localhost, 127.0.0.1, ::1 and the host's name are always in it. *ret_new: a CA was made.
 * On failure err (256 bytes) says what. -errno.
 */
int pki_setup(int dirfd, const char *const *names, size_t nnames, bool *ret_new, char err[256]);

/*
 * TLS context of the server: 1.2 or newer, forward secrecy and AEAD only. cert and key are paths. -errno with err.
 */
int pki_server_ctx(const char *cert, const char *key, SSL_CTX **ret_ctx, char err[256]);

/* "sha256:<base64>" of the leaf certificate's public key. */
int pki_pin(SSL_CTX *ctx, char pin[PKI_PIN_SIZE]);

/* 32 random bytes in the file name, made when it is missing. */
int pki_hub_key(int dirfd, const char *name, uint8_t key[32], char err[256]);

#endif
