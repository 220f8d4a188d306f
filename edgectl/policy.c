/*
 * policy: what this device permits, with the line of policy.conf for each key; policy usb-classes and policy l2: what privhelper is started with, read
 * from the file itself; policy test: what would become of a start. The start is read here as connectd reads a hub's, by the same function, and judged by workerd as it judges a hub's.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/fdutil.h"
#include "common/policy.h"
#include "edgectl/client.h"
#include "edgectl/edgectl.h"
#include "proto/hub/json.h"
#include "proto/hub/start.h"

#define START_MAX	(2u << 20)	/* bytes of JSON: a frame of a hub is smaller */
#define HANDLE		"policy-test"
#define POLICY_FILE	"/etc/edgeward/policy.conf"

struct show {
	yajl_gen g;			/* NULL: text */
	unsigned n;
};

/* ---- policy ---- */

/* A value is one word or a list of them; each is short, the whole need not be. */
static void
each_word(const char *value, void (*f)(const char *word, struct show *show), struct show *show)
{
	char copy[CTL_POLICY_VALUE_MAX + 1], *p = copy, *word;

	snprintf(copy, sizeof(copy), "%s", value);
	while ((word = strsep(&p, " ")) != NULL)
		f(word, show);
}

static void
word_text(const char *word, struct show *show)
{
	printf(" %s", out_safe(word));
}

static void
word_json(const char *word, struct show *show)
{
	json_str(show->g, NULL, word);
}

static void
on_key(const struct ctl_policy_key *key, const char *value, void *ctx)
{
	struct show *show = ctx;
	char where[32];

	if (show->g == NULL) {
		if (show->n++ == 0)
			printf("%-10s %-11s %-15s %s\n", "FROM", "SECTION", "KEY", "VALUE");
		snprintf(where, sizeof(where), key->line != 0 ? "line %u" : "default", key->line);
		printf("%-10s %-11s %-15s", where, out_safe(key->section), out_safe(key->name));
		each_word(value, word_text, show);
		putchar('\n');
		return;
	}
	json_open(show->g, NULL, '{');
	json_str(show->g, "section", key->section);
	json_str(show->g, "key", key->name);
	json_open(show->g, "values", '[');
	each_word(value, word_json, show);
	json_close(show->g, ']');
	if (key->line != 0)
		json_uint(show->g, "line", key->line);
	else
		json_null(show->g, "line");
	json_close(show->g, '}');
}

static void
show_end(struct show *show, const struct ctl_policy *p, bool complete)
{
	if (show->g == NULL) {
		if (complete)
			printf("%s%s\n", show->n > 0 ? "\n" : "", out_safe(p->file));
		return;
	}
	json_close(show->g, ']');
	json_bool(show->g, "complete", complete);
	json_str(show->g, "file", p->file);
	json_bool(show->g, "denied", p->denied != 0);
	json_str(show->g, "problem", p->problem);
	json_bool(show->g, "changed", p->changed != 0);
	json_end(show->g);
}

static int
show_policy(struct edgectl *ctl)
{
	static struct client c;
	struct show show = { .g = ctl->json ? json_begin() : NULL };
	struct ctl_policy p;
	int code = EXIT_OK;
	bool good;

	client_open(&c, ctl->loop, ctl->rundir, IPC_ROLE_WORKERD);
	c.policy_key = on_key;
	c.ctx = &show;
	if (show.g != NULL)
		json_open(show.g, "keys", '[');
	client_call(&c, CTL_REQ_POLICY, NULL, 0, CLIENT_WAIT_MS);
	good = client_answer(&c, &p, sizeof(p)) && ipc_str_ok(p.file, sizeof(p.file)) && ipc_str_ok(p.problem, sizeof(p.problem));
	if (!good)
		p = (struct ctl_policy){ 0 };
	show_end(&show, &p, good);
	if (good)
		client_check_build(&c);
	else
		code = client_complain(&c, "policy");
	client_close(&c);
	if (p.problem[0] == '\0' && p.changed != 0) {
		fprintf(stderr, "edgectl: policy: %s was changed after it was read, the above is what is in force: systemctl reload edgeward-connectd "
		    "edgeward-workerd\n", out_safe(p.file));
		return EXIT_DEGRADED;
	}
	if (p.problem[0] == '\0')
		return code;
	fprintf(stderr, "edgectl: policy: %s: %s\n", out_safe(p.problem), p.denied != 0 ? "nothing is started until that is put right" :
	    "what was in force before stays in force");
	return EXIT_DEGRADED;
}

/* Nothing unless the device lends USB devices: then what goes behind privhelper's -u. For the unit, which starts it before workerd. */
static int
show_usb_classes(const char *path)
{
	static struct policy policy;
	char err[KEYFILE_ERR];

	if (policy_load(&policy, path, geteuid(), err) < 0) {
		fprintf(stderr, "edgectl: policy: %s\n", out_safe(err));
		return EXIT_FAILED;
	}
	if (!policy.usb)
		return EXIT_OK;
	for (const char *item = NULL; (item = keyfile_list_next(&policy.usb_classes, item)) != NULL;)
		printf("%s%s", item == keyfile_list_next(&policy.usb_classes, NULL) ? "" : " ", item);
	putchar('\n');
	return EXIT_OK;
}

/* yes or no, for its -l. */
static int
show_l2(const char *path)
{
	static struct policy policy;
	char err[KEYFILE_ERR];

	if (policy_load(&policy, path, geteuid(), err) < 0) {
		fprintf(stderr, "edgectl: policy: %s\n", out_safe(err));
		return EXIT_FAILED;
	}
	return puts(policy.l2 ? "yes" : "no") < 0 ? EXIT_FAILED : EXIT_OK;
}

/* ---- policy test ---- */

/* All of stdin, NUL-terminated. NULL when it cannot be read or is too long. */
static char *
read_stdin(size_t *ret_len)
{
	char *buf = malloc(START_MAX + 1);
	size_t n = buf != NULL ? fread(buf, 1, START_MAX + 1, stdin) : 0;

	if (buf == NULL || n > START_MAX || ferror(stdin)) {
		free(buf);
		return NULL;
	}
	buf[n] = '\0';
	*ret_len = n;
	return buf;
}

static const char *
network_name(uint32_t network)
{
	static const char *const names[] = { [WORK_NETWORK_DEFAULT] = "", [WORK_NETWORK_NONE] = "none",
		[WORK_NETWORK_FILTERED] = "filtered", [WORK_NETWORK_HOST] = "host" };

	return network < sizeof(names) / sizeof(names[0]) ? names[network] : "";
}

static int
tell(struct edgectl *ctl, const struct ctl_verdict *v)
{
	bool accepted = v->refusal == WORK_OK;

	if (ctl->json) {
		yajl_gen g = json_begin();

		json_bool(g, "accepted", accepted);
		json_str(g, "code", accepted ? "" : name_of_refusal(v->refusal));
		json_str(g, "error", v->error);
		json_str(g, "program", v->program);
		json_str(g, "work_dir", v->work_dir);
		json_uint(g, "timeout_s", v->timeout_s);
		json_uint(g, "memory_bytes", v->memory_bytes);
		json_uint(g, "pids", v->pids);
		json_uint(g, "cpu_millis", v->cpu_millis);
		json_str(g, "network", network_name(v->network));
		json_end(g);
	} else if (!accepted) {
		printf("refused (%s): %s\n", name_of_refusal(v->refusal), out_safe(v->error));
	} else {
		printf("accepted: %s, network %s", out_safe(v->program), network_name(v->network));
		if (v->timeout_s != 0)
			printf(", timeout %u s", v->timeout_s);
		if (v->memory_bytes != 0)
			printf(", memory %s", out_bytes(v->memory_bytes));
		if (v->pids != 0)
			printf(", pids %u", v->pids);
		if (v->cpu_millis != 0)
			printf(", cpu %u.%03u", v->cpu_millis / 1000, v->cpu_millis % 1000);
		putchar('\n');
	}
	return accepted ? EXIT_OK : EXIT_FAILED;
}

static int
ask(struct edgectl *ctl, const uint8_t *spec, size_t len)
{
	static struct client c;
	struct ctl_verdict v;
	int code, fd = -1;

	if (len > IPC_MAX_CTL) {
		fd = fd_sealed_memfd("spec", spec, len);
		if (fd < 0) {
			fprintf(stderr, "edgectl: policy: %s\n", strerror(-fd));
			return EXIT_FAILED;
		}
		spec = NULL;
		len = 0;
	}
	client_open(&c, ctl->loop, ctl->rundir, IPC_ROLE_WORKERD);
	client_ask_fd(&c, CTL_REQ_POLICY_TEST, spec, len, fd);
	client_wait(&(struct client *){ &c }, 1, CLIENT_WAIT_MS);
	if (client_answer(&c, &v, sizeof(v)) && ipc_str_ok(v.error, sizeof(v.error)) &&
	    ipc_str_ok(v.program, sizeof(v.program)) && ipc_str_ok(v.work_dir, sizeof(v.work_dir)))
		code = tell(ctl, &v);
	else
		code = client_complain(&c, "policy");
	client_close(&c);
	if (fd >= 0)
		close(fd);
	return code;
}

/* The payload of a start, or a whole frame that holds one. */
static int
test_start(struct edgectl *ctl, const char *text, size_t len)
{
	struct ctl_verdict v = { 0 };
	struct json_doc *doc;
	const struct json *payload;
	uint8_t *spec = NULL;
	int code, r = json_parse(text, len, &doc);

	if (r < 0) {
		fprintf(stderr, "edgectl: policy: the start is no JSON; try '{\"spec\": {\"argv\": [\"/bin/true\"]}}'\n");
		return EXIT_FAILED;
	}
	payload = json_get(json_root(doc), "payload");
	if (payload == NULL)
		payload = json_root(doc);
	v.refusal = start_decode(payload, json_get_str(payload, "handle_id") != NULL ? json_get_str(payload, "handle_id") : HANDLE,
	    &spec, &len, v.error);
	code = v.refusal == WORK_OK ? ask(ctl, spec, len) : tell(ctl, &v);
	free(spec);
	json_doc_free(doc);
	return code;
}

int
cmd_policy(struct edgectl *ctl, int argc, char **argv)
{
	char *text;
	size_t len;
	int code;

	if (argc == 1)
		return show_policy(ctl);
	if (strcmp(argv[1], "usb-classes") == 0)
		return argc > 3 ? usage_error("policy", "usb-classes takes at most a file") :
		    show_usb_classes(argc == 3 ? argv[2] : POLICY_FILE);
	if (strcmp(argv[1], "l2") == 0)
		return argc > 3 ? usage_error("policy", "l2 takes at most a file") : show_l2(argc == 3 ? argv[2] : POLICY_FILE);
	if (strcmp(argv[1], "test") != 0 || argc != 3)
		return usage_error("policy", argc == 3 || strcmp(argv[1], "test") == 0 ? "give one start, as JSON, or -" :
		    "takes nothing, test, usb-classes or l2");
	if (strcmp(argv[2], "-") != 0)
		return test_start(ctl, argv[2], strlen(argv[2]));
	text = read_stdin(&len);
	if (text == NULL) {
		fprintf(stderr, "edgectl: policy: standard input cannot be read, or is larger than 2 MiB\n");
		return EXIT_FAILED;
	}
	code = test_start(ctl, text, len);
	free(text);
	return code;
}
