/* Making text fit to be given away. What may leave is listed; what is known to be secret is looked for besides, in every form. */
#ifndef EDGEWARD_EDGECTL_REDACT_H
#define EDGEWARD_EDGECTL_REDACT_H

#include <stddef.h>

#define REDACT_SECRETS	16
#define REDACT_SECRET	512

struct redact {
	unsigned n;
	char secret[REDACT_SECRETS][REDACT_SECRET];	/* shorter than 4 bytes: not kept, it would blank half of everything */
};

/* Adds a secret, and its base64 form. */
void redact_add(struct redact *r, const char *secret, size_t len);
/* Adds user and password of the userinfo of a URL, as written and together as Basic authentication has them. */
void redact_add_url(struct redact *r, const char *url);
void redact_wipe(struct redact *r);

/*
 * In place, never longer: known secrets, userinfo of URLs, what follows Bearer and Basic, and words that begin like a token become
 * "x". text ends with a NUL.
 */
void redact_text(const struct redact *r, char *text);

/*
 * A file in the form of edgeward.conf: comments are left out, values of keys that are not listed as harmless become "(withheld)".
 * keys: "section.key", NULL-terminated. out is cut to size. Then redact_text() for what was let through.
 */
void redact_conf(const char *text, const char *const *keys, char *out, size_t size);

#endif
