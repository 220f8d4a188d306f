/*
 * Pins: SHA-256 of the leaf certificate's SubjectPublicKeyInfo (DER), as cloop writes them. Several stage a rotation.
 * A pin is checked in addition to the chain and the host name, never instead.
 */
#ifndef EDGEWARD_CONNECTD_PIN_H
#define EDGEWARD_CONNECTD_PIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PIN_DIGEST	32u
#define PINS_MAX	16u
#define PIN_TEXT_SIZE	(sizeof("sha256:") + 44)
#define PIN_ERR_SIZE	200

struct pinset {
	unsigned n;
	uint8_t digest[PINS_MAX][PIN_DIGEST];
};

/*
 * Separators comma or white space; "sha256:" optional; standard or URL-safe base64, padded or not. Another algorithm,
 * and a text that is not empty but yields no pin, are errors. -EINVAL with err filled. "" gives an empty set.
 */
int pin_parse(const char *text, struct pinset *ret_pins, char err[PIN_ERR_SIZE]);

/* True if the set is empty or has the digest. */
bool pin_match(const struct pinset *pins, const uint8_t digest[PIN_DIGEST]);

/* "sha256:" and padded standard base64. Returns buf. */
const char *pin_format(const uint8_t digest[PIN_DIGEST], char buf[PIN_TEXT_SIZE]);

#endif
