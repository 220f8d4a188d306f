#include "proto/ipc/container.h"

#include <string.h>

#define ALNUM	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

bool
container_is(const struct work_str *s, const char *text)
{
	return s->len == strlen(text) && (s->len == 0 || memcmp(s->s, text, s->len) == 0);
}

const char *
container_engine_name(enum job_engine engine)
{
	static const char *const names[JOB_ENGINES] = { "", "docker", "podman", "nerdctl" };

	return (unsigned)engine < JOB_ENGINES ? names[engine] : "";
}

/* Only these, and the first is a letter or a digit: no option, no blank, no control character, no separator of a list. */
static bool
made_of(const struct work_str *s, const char *set, size_t max)
{
	if (s->len == 0 || s->len > max || s->s[0] == '\0' || strchr(ALNUM, s->s[0]) == NULL)
		return false;
	for (size_t i = 0; i < s->len; i++)
		if (s->s[i] == '\0' || strchr(set, s->s[i]) == NULL)
			return false;
	return true;
}

bool
container_image_ok(const struct work_str *s)
{
	if (!made_of(s, ALNUM "._-/:@", CONTAINER_IMAGE_MAX))
		return false;
	/* "dir:/etc" is no image of the engine's, to some of them it is a place to load one from. */
	for (size_t i = 1; i < s->len; i++)
		if (s->s[i] == '/' && (s->s[i - 1] == ':' || s->s[i - 1] == '/'))
			return false;
	return true;
}

bool
container_runtime_ok(const struct work_str *s)
{
	return s->len == 0 || made_of(s, ALNUM "._-", CONTAINER_NAME_MAX);
}

bool
container_network_ok(const struct work_str *s)
{
	/* Words that some engine takes for something else than a network of its own. */
	static const char *const others[] = { "host", "private", "default", "slirp4netns", "pasta" };

	for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (container_is(s, others[i]))
			return false;
	return s->len == 0 || made_of(s, ALNUM "._-", CONTAINER_NAME_MAX);
}
