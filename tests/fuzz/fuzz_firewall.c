/*
 * Two firewalls from any bytes. What is computed with sets agrees, address by address, with what the lists say one by one; and
 * when one is said to be inside the other, no address and port shows otherwise.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "workerd/launcher/ruleset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool
in(const struct fw_cidr *list, uint32_t n, enum fw_family f, netaddr_t a)
{
	for (uint32_t i = 0; i < n; i++)
		if (list[i].family == f && a >= fw_range(&list[i]).lo && a <= fw_range(&list[i]).hi)
			return true;
	return false;
}

static void
check_address(const struct firewall *fw, const struct netset *set, enum fw_family f, netaddr_t a)
{
	bool has = netset_has(set, a);

	if (has && (in(fw->deny, fw->ndeny, f, a) || (!fw->public_internet && !in(fw->allow, fw->nallow, f, a))))
		abort();
	if (f == FW_V4 && has && ((a >> 24) == 127 || (a >> 28) == 14 || (a >> 24) == 0))
		abort();
}

static void
check_set(const struct firewall *fw, enum fw_family f, const struct netset *set, const struct firewall *other)
{
	netaddr_t top = f == FW_V4 ? UINT32_MAX : ~(netaddr_t)0;

	for (uint32_t i = 0; i < set->n; i++) {
		if (set->r[i].lo > set->r[i].hi || set->r[i].hi > top || (i > 0 && set->r[i].lo <= set->r[i - 1].hi + 1))
			abort();
		check_address(fw, set, f, set->r[i].lo);
		check_address(fw, set, f, set->r[i].hi);
	}
	for (uint32_t i = 0; i < other->nallow + other->ndeny; i++) {
		const struct fw_cidr *c = i < other->nallow ? &other->allow[i] : &other->deny[i - other->nallow];

		check_address(fw, set, f, fw_range(c).lo);
		check_address(fw, set, f, fw_range(c).hi);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct firewall a, b;
	static struct netset sa, sb;
	static int fd = -1;
	struct wire_r r;
	char why[160] = "";
	int inside;

	wire_r_init(&r, data, size);
	fw_get(&r, &a);
	fw_get(&r, &b);
	if (wire_done(&r) < 0)
		return 0;
	inside = fw_narrow(&a, &b, why);
	if ((inside == -1 && why[0] == '\0') || memchr(why, '\0', sizeof(why)) == NULL)
		abort();
	for (enum fw_family f = FW_V4; f < FW_FAMILIES; f++) {
		if (fw_destinations(&a, f, &sa) < 0 || fw_destinations(&b, f, &sb) < 0)
			abort();
		check_set(&a, f, &sa, &b);
		check_set(&b, f, &sb, &a);
		for (uint32_t i = 0; i < sa.n && inside == 0; i++)
			if (!netset_has(&sb, sa.r[i].lo) || !netset_has(&sb, sa.r[i].hi))
				abort();
	}
	if (fd < 0)
		fd = memfd_create("rules", MFD_CLOEXEC);
	if (ruleset_write(fd, &a) < 0 || ftruncate(fd, 0) < 0)
		abort();
	return 0;
}
