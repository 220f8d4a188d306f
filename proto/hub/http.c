/*
 * Bytes are checked one by one as they come into the buffer, so that nothing after the head is touched and a CR or LF
 * out of place ends it at once. A complete line is taken apart in place: separators become NUL.
 */
#include "proto/hub/http.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

/* Headers that may occur once: a second one means that two readers could choose differently. */
static const char *const once[] = {
	"Host", "Content-Length", "Transfer-Encoding", "Authorization", "Upgrade", "Sec-WebSocket-Key",
	"Sec-WebSocket-Accept", "Location", "Retry-After",
};

void
http_init(struct http_head *head, enum http_kind kind)
{
	/* buf is written before it is read: not cleared. */
	memset(head, 0, offsetof(struct http_head, field));
	head->kind = kind;
	head->content_length = -1;
}

/* RFC 9110 5.6.2: the characters of a token. */
static bool
is_tchar(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	    (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool
is_token(const char *s)
{
	if (*s == '\0')
		return false;
	while (is_tchar(*s))
		s++;
	return *s == '\0';
}

static int
parse_version(const char *s, unsigned *ret_minor)
{
	if (strncmp(s, "HTTP/1.", 7) != 0 || (s[7] != '0' && s[7] != '1'))
		return -EBADMSG;
	*ret_minor = (unsigned)(s[7] - '0');
	return 0;
}

static int
parse_request_line(struct http_head *head, char *line)
{
	char *target = strchr(line, ' '), *version;

	if (target == NULL)
		return -EBADMSG;
	*target++ = '\0';
	version = strchr(target, ' ');
	if (version == NULL || version == target)
		return -EBADMSG;
	*version++ = '\0';
	if (!is_token(line) || strlen(version) != 8 || parse_version(version, &head->minor) < 0)
		return -EBADMSG;
	for (const char *p = target; *p != '\0'; p++)
		if (*p < '!' || *p > '~')
			return -EBADMSG;
	head->method = line;
	head->target = target;
	return 0;
}

/* A server that leaves out the blank before an empty reason is understood all the same: nothing else can be meant. */
static int
parse_status_line(struct http_head *head, const char *line)
{
	unsigned status = 0;

	if (parse_version(line, &head->minor) < 0 || line[8] != ' ')
		return -EBADMSG;
	for (size_t i = 9; i < 12; i++) {
		if (line[i] < '0' || line[i] > '9')
			return -EBADMSG;
		status = status * 10 + (unsigned)(line[i] - '0');
	}
	if (status < 100 || (line[12] != ' ' && line[12] != '\0'))
		return -EBADMSG;
	head->status = status;
	head->reason = line[12] == ' ' ? line + 13 : line + 12;
	return 0;
}

static int
parse_field(struct http_head *head, char *line)
{
	char *colon = strchr(line, ':'), *value, *end;

	if (colon == NULL)
		return -EBADMSG;
	*colon = '\0';
	/* A blank in front (a folded line) or before the colon is no token either. */
	if (!is_token(line))
		return -EBADMSG;
	if (head->nfields == HTTP_HEADERS_MAX)
		return -EMSGSIZE;
	value = colon + 1 + strspn(colon + 1, " \t");
	for (end = value + strlen(value); end > value && (end[-1] == ' ' || end[-1] == '\t'); end--)
		;
	*end = '\0';
	head->field[head->nfields++] = (struct http_field){
		.name = (uint16_t)(line - head->buf), .value = (uint16_t)(value - head->buf) };
	return 0;
}

static int
parse_content_length(const char *s, int64_t *ret_len)
{
	int64_t v = 0;

	if (*s == '\0')
		return -EBADMSG;
	for (; *s != '\0'; s++)
		if (*s < '0' || *s > '9' || __builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, *s - '0', &v))
			return -EBADMSG;
	*ret_len = v;
	return 0;
}

/* What can only be said about the head as a whole. */
static int
check_head(struct http_head *head)
{
	const char *length, *coding;

	for (size_t i = 0; i < sizeof(once) / sizeof(once[0]); i++)
		if (http_header_count(head, once[i]) > 1)
			return -EBADMSG;
	length = http_header(head, "Content-Length");
	coding = http_header(head, "Transfer-Encoding");
	if (length != NULL && (coding != NULL || parse_content_length(length, &head->content_length) < 0))
		return -EBADMSG;
	if (coding != NULL && (strcasecmp(coding, "chunked") != 0 || head->minor == 0))
		return -EBADMSG;
	head->chunked = coding != NULL;
	if (head->kind == HTTP_REQUEST && head->minor == 1 && http_header(head, "Host") == NULL)
		return -EBADMSG;
	return 0;
}

/* A line without its CRLF, NUL-terminated. 1 = it was the empty one. */
static int
take_line(struct http_head *head, char *line)
{
	if (head->nlines++ == 0)
		return head->kind == HTTP_REQUEST ? parse_request_line(head, line) : parse_status_line(head, line);
	if (*line == '\0') {
		int r = check_head(head);

		return r < 0 ? r : 1;
	}
	return parse_field(head, line);
}

static int
take_byte(struct http_head *head, char c)
{
	bool after_cr = head->len > head->line && head->buf[head->len - 1] == '\r';
	unsigned char u = (unsigned char)c;
	int r;

	if (after_cr != (c == '\n'))
		return -EBADMSG;
	if ((u < ' ' && c != '\r' && c != '\n' && c != '\t') || u == 0x7f)
		return -EBADMSG;
	if (head->len == HTTP_HEAD_MAX)
		return -EMSGSIZE;
	head->buf[head->len++] = c;
	if (c != '\n')
		return 0;
	head->buf[head->len - 2] = '\0';
	r = take_line(head, head->buf + head->line);
	head->line = head->len;
	return r;
}

int
http_feed(struct http_head *head, const void *data, size_t len, size_t *ret_used)
{
	const char *p = data;
	size_t used = 0;
	int r = head->done ? 1 : head->err;

	while (r == 0 && used < len)
		r = take_byte(head, p[used++]);
	head->done = r == 1;
	head->err = r < 0 ? r : 0;
	*ret_used = used;
	return r;
}

const char *
http_header_next(const struct http_head *head, const char *name, unsigned *pos)
{
	while (*pos < head->nfields) {
		const struct http_field *f = &head->field[(*pos)++];

		if (strcasecmp(head->buf + f->name, name) == 0)
			return head->buf + f->value;
	}
	return NULL;
}

const char *
http_header(const struct http_head *head, const char *name)
{
	unsigned pos = 0;

	return http_header_next(head, name, &pos);
}

unsigned
http_header_count(const struct http_head *head, const char *name)
{
	unsigned pos = 0, n = 0;

	while (http_header_next(head, name, &pos) != NULL)
		n++;
	return n;
}

static bool
list_has(const char *list, const char *token)
{
	size_t want = strlen(token);

	while (*list != '\0') {
		size_t n;

		list += strspn(list, " \t,");
		n = strcspn(list, ",");
		list += n;
		while (n > 0 && (list[-1] == ' ' || list[-1] == '\t')) {
			list--;
			n--;
		}
		if (n == want && strncasecmp(list - n, token, n) == 0)
			return true;
		list += strspn(list, " \t");
	}
	return false;
}

bool
http_has_token(const struct http_head *head, const char *name, const char *token)
{
	unsigned pos = 0;
	const char *value;

	while ((value = http_header_next(head, name, &pos)) != NULL)
		if (list_has(value, token))
			return true;
	return false;
}
