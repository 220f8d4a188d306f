/*
 * The chunked coding of RFC 9112 section 7.1, taken off a body as its bytes come. Strict, as two readers who disagree about where a body ends
 * are a hole: sizes are 1 to 15 hexadecimal digits and nothing else (no sign, no blank, no extension unless asked for), only CRLF ends a
 * line, and trailers are refused or, where asked for, passed over within a bound. Whoever sends a body on codes it anew.
 */
#ifndef EDGEWARD_PROTO_HUB_CHUNKED_H
#define EDGEWARD_PROTO_HUB_CHUNKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHUNKED_LINE_MAX	256u	/* of a size with its extensions */
#define CHUNKED_TRAILER_MAX	4096u	/* all of them */
#define CHUNKED_HEAD		18u	/* most that chunked_put_size() writes */

enum chunked_state { CHUNKED_SIZE, CHUNKED_EXT, CHUNKED_SIZE_LF, CHUNKED_DATA, CHUNKED_CR, CHUNKED_LF, CHUNKED_TRAILER, CHUNKED_DONE };

struct chunked {
	enum chunked_state state;
	bool lenient;			/* extensions and trailers are passed over: of an answer, not of a request */
	bool after_cr;			/* in the trailer */
	unsigned digits, line;
	size_t trailer;
	uint64_t left;			/* of the chunk in hand */
};

void chunked_init(struct chunked *c, bool lenient);

/*
 * Looks at data. *ret_used bytes of it belong to the body's coding, and the content among them is *ret_content, *ret_len: at most one
 * piece a call, a part of data. 1 = the body has ended, 0 = go on with what follows the used bytes, -EBADMSG.
 */
int chunked_take(struct chunked *c, const uint8_t *data, size_t len, size_t *ret_used, const uint8_t **ret_content, size_t *ret_len);

/* "SIZE CRLF" of a chunk of len > 0 bytes; its length. The content and CRLF follow. */
size_t chunked_put_size(char buf[CHUNKED_HEAD + 1], size_t len);
#define CHUNKED_LAST	"0\r\n\r\n"

#endif
