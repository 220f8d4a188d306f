#include "common/keyvalue.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/parse.h"
#include "proto/ipc/container.h"
#include "proto/ipc/firewall.h"
#include "proto/ipc/service.h"

#define NAME_LEN	32

/* ---- items of lists ---- */

int
keyfile_path_ok(const char *s)
{
	if (s[0] != '/' || s[1] == '\0')
		return 0;
	for (const char *c = s; *c != '\0'; c++)
		if (*c <= ' ' || *c > '~')
			return 0;
	while (*s == '/') {
		size_t len = strcspn(s + 1, "/");

		if (len == 0 || (s[1] == '.' && (len == 1 || (len == 2 && s[2] == '.'))))
			return 0;
		s += 1 + len;
	}
	return 1;
}

static bool
name_fits(const char *s)
{
	size_t len = strlen(s);

	return len > 0 && len <= NAME_LEN && strchr("-0123456789", s[0]) == NULL &&
	    strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_-") == len;
}

static bool
class_fits(const char *s)
{
	return strlen(s) == 2 && strspn(s, "0123456789abcdef") == 2;
}

static bool
address_fits(const char *s)
{
	const char *colon = strrchr(s, ':');
	size_t len = colon != NULL ? (size_t)(colon - s) : 0;
	uint32_t port;

	if (len == 0 || parse_u32(colon + 1, 1, 65535, &port) < 0)
		return false;
	if (s[0] == '[')
		return len > 2 && s[len - 1] == ']' && strspn(s + 1, "0123456789abcdef:.") == len - 2;
	return strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789.-") == len;
}

static bool
item_fits(const struct key *key, const char *s)
{
	struct fw_endpoint resolver;
	struct service_target target;
	char name[SERVICE_NAME_SIZE];
	struct fw_cidr cidr;
	uint32_t port;

	switch (key->type) {
	case KEY_PATHS:
		return keyfile_path_ok(s);
	case KEY_NAMES:
		return name_fits(s);
	case KEY_CLASSES:
		return class_fits(s);
	case KEY_ADDRESSES:
		return address_fits(s);
	case KEY_CIDRS:
		return fw_cidr_parse(s, key->max != 0, &cidr) == 0;
	case KEY_PORTS:
		return parse_u32(s, 1, 65535, &port) == 0;
	case KEY_IMAGES:
		return container_image_ok(&(struct work_str){ s, strlen(s) });
	case KEY_RESOLVERS:
		return fw_resolver_parse(s, &resolver) == 0;
	case KEY_SERVICES:
		return service_declared_parse(s, name, &target) == 0;
	case KEY_STR:
	case KEY_BOOL:
	case KEY_U32:
	case KEY_MS:
	case KEY_SIZE:
	case KEY_CHOICE:
	case KEY_PATH:
		break;
	}
	return false;
}

bool
keyvalue_is_list(const struct key *key)
{
	return key->type >= KEY_PATHS;
}

/* ---- text into fields ---- */

static int
choice_of(const struct key *key, const char *value)
{
	for (int i = 0; key->choices != NULL && key->choices[i] != NULL; i++)
		if (strcmp(value, key->choices[i]) == 0)
			return i;
	return -EINVAL;
}

static int
add_item(const struct key *key, struct keyfile_list *list, const char *item)
{
	size_t size = strlen(item) + 1;

	if (!item_fits(key, item))
		return -EINVAL;
	if (keyfile_list_has(list, item, size - 1))
		return 0;
	if (size > sizeof(list->text) - list->len)
		return -ERANGE;
	memcpy(list->text + list->len, item, size);
	list->len = (uint16_t)(list->len + size);
	list->n++;
	return 0;
}

static int
set_list(const struct key *key, struct keyfile_list *list, const char *value, bool more)
{
	char copy[KEYFILE_STR], *p = copy, *item;
	int word = choice_of(key, value);

	if (word >= 0 && more)
		return -EINVAL;		/* it stands alone */
	if ((more && list->word != 0) || strlen(value) >= sizeof(copy))
		return -EINVAL;
	if (!more)
		memset(list, 0, sizeof(*list));
	if (word >= 0) {
		list->word = (uint16_t)(word + 1);
		return 0;
	}
	snprintf(copy, sizeof(copy), "%s", value);
	while ((item = strsep(&p, " \t")) != NULL) {
		int r = item[0] != '\0' ? add_item(key, list, item) : 0;

		if (r < 0)
			return r;
	}
	return list->n > 0 ? 0 : -EINVAL;
}

static int
set_str(const struct key *key, char *field, const char *value)
{
	size_t len = strlen(value);

	if (len >= KEYFILE_STR || (key->max != 0 && len > key->max))
		return -ERANGE;
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)value[i] < 0x20 || value[i] == 0x7f)
			return -EINVAL;
	memset(field, 0, KEYFILE_STR);
	memcpy(field, value, len);
	return 0;
}

static int
set_bool(bool *field, const char *value)
{
	int v, r = parse_yes_no(value, &v);

	if (r == 0)
		*field = v != 0;
	return r;
}

static int
set_number(const struct key *key, void *field, const char *value)
{
	if (choice_of(key, value) == 0)
		value = "0";
	else if (key->choices != NULL && strcmp(value, "0") == 0)
		return -EINVAL;		/* one way to say it */
	switch (key->type) {
	case KEY_U32:
		return parse_u32(value, key->choices != NULL ? 0 : (uint32_t)key->min, (uint32_t)key->max, field);
	case KEY_MS:
		return parse_duration_ms(value, key->choices != NULL ? 0 : (int64_t)key->min, (int64_t)key->max, field);
	case KEY_SIZE:
		return parse_size(value, key->choices != NULL ? 0 : key->min, key->max, field);
	case KEY_STR:
	case KEY_BOOL:
	case KEY_CHOICE:
	case KEY_PATH:
	case KEY_PATHS:
	case KEY_NAMES:
	case KEY_CLASSES:
	case KEY_ADDRESSES:
	case KEY_CIDRS:
	case KEY_PORTS:
	case KEY_IMAGES:
	case KEY_RESOLVERS:
	case KEY_SERVICES:
		break;
	}
	return -EINVAL;
}

/* Where a word stands for 0, the least number holds for every other value. */
static bool
too_small(const struct key *key, const void *field)
{
	uint64_t v = 0;

	memcpy(&v, field, key->type == KEY_U32 ? sizeof(uint32_t) : sizeof(uint64_t));
	return key->choices != NULL && v != 0 && v < key->min;
}

int
keyvalue_set(const struct key *key, void *target, const char *value, bool more)
{
	void *field = (char *)target + key->offset;
	int r;

	switch (key->type) {
	case KEY_STR:
		return set_str(key, field, value);
	case KEY_BOOL:
		return set_bool(field, value);
	case KEY_U32:
	case KEY_MS:
	case KEY_SIZE:
		r = set_number(key, field, value);
		return r == 0 && too_small(key, field) ? -ERANGE : r;
	case KEY_CHOICE:
		r = choice_of(key, value);
		if (r >= 0)
			memcpy(field, &(unsigned){ (unsigned)r }, sizeof(unsigned));
		return r < 0 ? r : 0;
	case KEY_PATH:
		if (choice_of(key, value) == 0)
			return set_str(key, field, "");
		return keyfile_path_ok(value) ? set_str(key, field, value) : -EINVAL;
	case KEY_PATHS:
	case KEY_NAMES:
	case KEY_CLASSES:
	case KEY_ADDRESSES:
	case KEY_CIDRS:
	case KEY_PORTS:
	case KEY_IMAGES:
	case KEY_RESOLVERS:
	case KEY_SERVICES:
		return set_list(key, field, value, more);
	}
	return -EINVAL;
}

/* ---- for people ---- */

__attribute__((format(printf, 3, 4))) static void
add(char *buf, size_t size, const char *fmt, ...)
{
	size_t len = strlen(buf);
	va_list ap;

	va_start(ap, fmt);
	if (len < size)
		vsnprintf(buf + len, size - len, fmt, ap);
	va_end(ap);
}

static void
add_range(const struct key *key, char *buf, size_t size)
{
	unsigned long long min = key->min, max = key->max;

	switch (key->type) {
	case KEY_STR:
		add(buf, size, "printable text of at most %llu bytes", max != 0 ? max : KEYFILE_STR - 1);
		return;
	case KEY_BOOL:
		add(buf, size, "yes or no");
		return;
	case KEY_U32:
		add(buf, size, "a number from %llu to %llu", min, max);
		return;
	case KEY_MS:
		add(buf, size, "a time from %llums to %llus, with unit ms, s, m or h", min, max / 1000);
		return;
	case KEY_SIZE:
		add(buf, size, "a size of at least %llu bytes, with unit K, M or G", min);
		return;
	case KEY_CHOICE:
		add(buf, size, "one of");
		return;
	case KEY_PATH:
		add(buf, size, "an absolute path");
		return;
	case KEY_PATHS:
		add(buf, size, "absolute paths without . and .., with spaces between them");
		return;
	case KEY_NAMES:
		add(buf, size, "names of a-z 0-9 _ -, with spaces between them");
		return;
	case KEY_CLASSES:
		add(buf, size, "classes of two hexadecimal digits, with spaces between them");
		return;
	case KEY_ADDRESSES:
		add(buf, size, "HOST:PORT, several with spaces between them");
		return;
	case KEY_CIDRS:
		add(buf, size, "ADDRESS or ADDRESS/PREFIX%s, several with spaces between them", max != 0 ? "" : ", PREFIX not 0");
		return;
	case KEY_PORTS:
		add(buf, size, "numbers from 1 to 65535, with spaces between them");
		return;
	case KEY_IMAGES:
		add(buf, size, "references of images, with spaces between them");
		return;
	case KEY_RESOLVERS:
		add(buf, size, "ADDRESS or ADDRESS:PORT, not of this device's loopback, several with spaces between them");
		return;
	case KEY_SERVICES:
		add(buf, size, "NAME=http://HOST:PORT, NAME=https://HOST:PORT or NAME=unix:/PATH, several with spaces between them");
		return;
	}
}

void
keyvalue_expected(const struct key *key, char *buf, size_t size)
{
	buf[0] = '\0';
	add_range(key, buf, size);
	for (unsigned i = 0; key->choices != NULL && key->choices[i] != NULL; i++)
		add(buf, size, "%s%s", key->type == KEY_CHOICE ? " " : " or ", key->choices[i]);
}

static void
put_scaled(uint64_t v, char *buf, size_t size)
{
	static const char units[] = "GMK";

	for (unsigned i = 0; i < 3; i++) {
		unsigned shift = 30 - 10 * i;

		if (v != 0 && v % (UINT64_C(1) << shift) == 0) {
			add(buf, size, "%llu%c", (unsigned long long)(v >> shift), units[i]);
			return;
		}
	}
	add(buf, size, "%llu", (unsigned long long)v);
}

static void
put_list(const struct key *key, const struct keyfile_list *list, char *buf, size_t size)
{
	if (list->word != 0) {
		add(buf, size, "%s", key->choices[list->word - 1]);
		return;
	}
	for (const char *item = NULL; (item = keyfile_list_next(list, item)) != NULL;)
		add(buf, size, "%s%s", item != list->text ? " " : "", item);
}

void
keyfile_value(const struct key *key, const void *target, char *buf, size_t size)
{
	const void *field = (const char *)target + key->offset;
	uint64_t v = 0;

	buf[0] = '\0';
	if (keyvalue_is_list(key)) {
		put_list(key, field, buf, size);
		return;
	}
	if (key->type == KEY_STR || key->type == KEY_PATH) {
		add(buf, size, "%s", ((const char *)field)[0] == '\0' && key->choices != NULL ? key->choices[0] :
		    (const char *)field);
		return;
	}
	memcpy(&v, field, key->type == KEY_BOOL ? sizeof(bool) : key->type == KEY_MS || key->type == KEY_SIZE ?
	    sizeof(uint64_t) : sizeof(uint32_t));
	if (key->type == KEY_BOOL)
		add(buf, size, "%s", v != 0 ? "yes" : "no");
	else if (key->type == KEY_CHOICE || (v == 0 && key->choices != NULL))
		add(buf, size, "%s", key->choices[v]);
	else if (key->type == KEY_SIZE)
		put_scaled(v, buf, size);
	else if (key->type == KEY_MS)
		add(buf, size, v % 1000 == 0 ? "%llus" : "%llums", (unsigned long long)(v % 1000 == 0 ? v / 1000 : v));
	else
		add(buf, size, "%llu", (unsigned long long)v);
}

int
keyfile_list_has(const struct keyfile_list *list, const char *item, size_t len)
{
	for (const char *i = NULL; (i = keyfile_list_next(list, i)) != NULL;)
		if (strlen(i) == len && memcmp(i, item, len) == 0)
			return 1;
	return 0;
}

const char *
keyfile_list_next(const struct keyfile_list *list, const char *item)
{
	const char *next = item == NULL ? list->text : item + strlen(item) + 1;

	return next < list->text + list->len ? next : NULL;
}
