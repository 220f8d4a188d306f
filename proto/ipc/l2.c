/* Checks of what crosses the work channel and workinit's about interfaces, the same on every side; and addresses from text. */
#include "proto/ipc/l2.h"

#include <arpa/inet.h>
#include <string.h>

#include "proto/ipc/ipc.h"
#include "proto/ipc/names.h"
#include "proto/ipc/priv.h"

static bool
addr_ok(const struct l2_addr *a)
{
	static const uint8_t zero[16];
	size_t len = a->family == 4 ? 4 : 16;

	if ((a->family != 4 && a->family != 6) || a->prefix == 0 || a->prefix > 8 * len || a->reserved[0] != 0 || a->reserved[1] != 0 ||
	    memcmp(a->addr + len, zero, 16 - len) != 0 || memcmp(a->addr, zero, len) == 0)
		return false;
	/* multicast, broadcast and loopback are no host's */
	if (a->family == 4)
		return a->addr[0] < 224 && a->addr[0] != 127 && a->addr[0] != 0;
	return a->addr[0] != 0xff && (memcmp(a->addr, zero, 15) != 0 || a->addr[15] != 1);
}

static bool
addrs_ok(const struct l2_addr *addrs, uint32_t n)
{
	static const struct l2_addr none;

	for (uint32_t i = 0; i < L2_ADDRS; i++)
		if (i < n ? !addr_ok(&addrs[i]) : memcmp(&addrs[i], &none, sizeof(none)) != 0)
			return false;
	return n <= L2_ADDRS;
}

bool
l2_open_ok(const struct l2_open *o)
{
	const struct priv_tap tap = { .mac = { o->mac[0] }, .mtu = o->mtu, .offload = o->offload, .name = "eth0" };

	return ipc_str_ok(o->id, sizeof(o->id)) && name_ok(o->id) && ipc_str_ok(o->handle, sizeof(o->handle)) && (o->handle[0] == '\0' || handle_ok(o->handle)) &&
	    priv_tap_name_ok(o->name) && priv_tap_ok(&tap) && addrs_ok(o->addrs, o->naddrs);
}

bool
l2_answer_ok(const struct l2_answer *a)
{
	return a->ok <= L2_WAITS && a->offload <= (a->ok == L2_IS_UP) && ipc_str_ok(a->error, sizeof(a->error)) &&
	    (a->ok != L2_NO) == (a->error[0] == '\0');
}

bool
l2_ref_ok(const struct l2_ref *ref)
{
	return ipc_str_ok(ref->id, sizeof(ref->id)) && name_ok(ref->id);
}

bool
l2_addresses_ok(const struct l2_addresses *a)
{
	return priv_tap_name_ok(a->name) && addrs_ok(a->addrs, a->n);
}

bool
l2_addr_parse(const char *text, struct l2_addr *ret_addr)
{
	struct l2_addr a = { 0 };
	const char *slash = strchr(text, '/');
	char host[INET6_ADDRSTRLEN];
	unsigned prefix = 0;

	if (slash == NULL || (size_t)(slash - text) >= sizeof(host) || slash[1] == '\0' || slash[1] == '0' || strlen(slash + 1) > 3 ||
	    strspn(slash + 1, "0123456789") != strlen(slash + 1))
		return false;
	for (const char *p = slash + 1; *p != '\0'; p++)
		prefix = prefix * 10 + (unsigned)(*p - '0');
	memcpy(host, text, (size_t)(slash - text));
	host[slash - text] = '\0';
	a.family = strchr(host, ':') != NULL ? 6 : 4;
	a.prefix = (uint8_t)(prefix <= 128 ? prefix : 0);
	if (inet_pton(a.family == 6 ? AF_INET6 : AF_INET, host, a.addr) != 1 || !addr_ok(&a))
		return false;
	*ret_addr = a;
	return true;
}

bool
l2_mac_parse(const char *text, uint8_t ret_mac[6])
{
	static const char digits[] = "0123456789abcdef";
	uint8_t mac[6];

	for (unsigned i = 0; i < 6; i++) {
		const char *hi = text[0] != '\0' ? strchr(digits, text[0] | 0x20) : NULL;
		const char *lo = hi != NULL && text[1] != '\0' ? strchr(digits, text[1] | 0x20) : NULL;

		if (hi == NULL || lo == NULL || *hi == '\0' || *lo == '\0' || text[2] != (i < 5 ? ':' : '\0'))
			return false;
		mac[i] = (uint8_t)((hi - digits) << 4 | (lo - digits));
		text += 3;
	}
	if ((mac[0] & 3) != 2)
		return false;
	memcpy(ret_mac, mac, sizeof(mac));
	return true;
}
