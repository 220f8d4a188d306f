/* Who calls: stage.c, when the payload is started, and leases.c before that. The vault is ours; a copy of what it holds lives for one call. */
#include "workerd/handout.h"

#include <errno.h>
#include <string.h>

#include "proto/ipc/secrets.h"
#include "workerd/vault.h"

static struct {
	uint8_t buf[SECRET_TOTAL_MAX + SECRETS_MAX * 1024u];
	size_t len;
} items;

/* True if this variable was taken back. */
static bool
is_revoked(const struct vault *v, const struct work_str *var)
{
	struct vault_item item;
	struct vault_iter it;

	vault_begin(v, &it);
	while (vault_next(&it, &item)) {
		size_t n = strlen(item.s.name);

		if (item.s.kind == SECRET_ENV && (*item.flags & VAULT_REVOKED) != 0 && var->len > n && var->s[n] == '=' &&
		    memcmp(var->s, item.s.name, n) == 0)
			return true;
	}
	return false;
}

int
handout_make(const struct workload *wl, struct work_spec *spec)
{
	struct vault_item item;
	struct vault_iter it;
	struct wire_w w;
	uint32_t n = 0;

	spec->secrets = (struct work_str){ 0 };
	if (wl->vault == NULL)
		return 0;
	for (uint32_t i = 0; i < spec->envc; i++)
		if (!is_revoked(wl->vault, &spec->env[i]))
			spec->env[n++] = spec->env[i];
	spec->envc = n;
	wire_w_init(&w, items.buf, sizeof(items.buf));
	vault_begin(wl->vault, &it);
	while (vault_next(&it, &item)) {
		if (item.s.kind != SECRET_FILE || *item.flags != 0)
			continue;
		item.s.lease[0] = item.s.grant[0] = '\0';	/* it is not asked about them */
		secret_put(&w, &item.s);
	}
	if (wire_w_done(&w, &items.len) < 0)
		return -E2BIG;
	spec->secrets = (struct work_str){ (const char *)items.buf, items.len };
	return 0;
}

void
handout_wipe(void)
{
	explicit_bzero(items.buf, items.len);
	items.len = 0;
}

bool
handout_has_room(const struct workload *wl, const char *dir, const char *name, size_t len)
{
	struct vault_item item;
	struct vault_iter it;

	vault_begin(wl->vault, &it);
	while (vault_next(&it, &item))
		if (item.s.kind == SECRET_FILE && *item.flags == 0 && (strcmp(item.s.dir, dir) != 0 || strcmp(item.s.name, name) != 0))
			len += item.s.len;
	return len <= SECRET_TOTAL_MAX;
}
