/* Nodes of a lent device, from a made-up tree of sysfs: as many as there may be, whatever the device has, and no longer than it has them. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/usbgrant.h"
#include "tests/unit/unit.h"

static char top[] = "/tmp/test_usbgrant.XXXXXX";

static void
put(int dir, const char *name, const char *text)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void
put_node(int dir, const char *name, const char *number)
{
	int fd;

	assert_int_equal(mkdirat(dir, name, 0755), 0);
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY);
	assert_true(fd >= 0);
	put(fd, "dev", number);
	assert_int_equal(symlinkat("../../../class/block", fd, "subsystem"), 0);
	close(fd);
}

/* A disk of many partitions: what does not fit is left out, and not a byte lies behind the list. */
static void
more_than_there_may_be(void **state)
{
	struct {
		struct usbgrant_node nodes[PRIV_USB_NODES];
		uint8_t behind[2 * sizeof(struct usbgrant_node)];
	} found;
	char name[32], number[32];
	int dir;

	assert_non_null(mkdtemp(top));
	dir = open(top, O_RDONLY | O_DIRECTORY);
	for (int i = 0; i < (int)PRIV_USB_NODES + 12; i++) {
		snprintf(name, sizeof(name), "sda%d", i);
		snprintf(number, sizeof(number), "8:%d\n", i);
		put_node(dir, name, number);
	}
	memset(&found, 0xa5, sizeof(found));
	assert_int_equal(usbgrant_find(dir, found.nodes, PRIV_USB_NODES), PRIV_USB_NODES);
	for (size_t i = 0; i < sizeof(found.behind); i++)
		assert_int_equal(found.behind[i], 0xa5);
	for (size_t i = 0; i < PRIV_USB_NODES; i++)
		assert_int_equal(found.nodes[i].type, S_IFBLK);
	close(dir);
	dir = open(top, O_RDONLY | O_DIRECTORY);
	assert_int_equal(usbgrant_find(dir, found.nodes, 1), 1);
	assert_int_equal(usbgrant_find(-1, found.nodes, PRIV_USB_NODES), 0);
	close(dir);
}

/* Its driver went: the number is free for another device, so the name goes at once. */
static void
what_is_gone_is_taken_back(void **state)
{
	struct pool pool = { getuid(), 1, getgid() };
	struct usbgrants g = { .dir = -1 };
	struct usbgrant_row *r = &g.rows[0];
	char lent[64];
	int dev;

	snprintf(lent, sizeof(lent), "%s/lent", top);
	assert_int_equal(mkdir(lent, 0755), 0);
	usbgrant_open(&g, lent, &pool);
	assert_true(g.dir >= 0);
	/* As usbgrant_give() leaves it, with files in place of the nodes, which only root can make. */
	*r = (struct usbgrant_row){ .given = true, .n = 2, .nodes = { { makedev(8, 1), S_IFBLK, { "sda1", "block" } }, { makedev(8, 99), S_IFBLK, { "sdz", "block" } } } };
	put(g.dir, "0/sda1", "");
	put(g.dir, "0/sdz", "");
	snprintf(lent, sizeof(lent), "%s/device", top);
	assert_int_equal(mkdir(lent, 0755), 0);
	dev = open(lent, O_RDONLY | O_DIRECTORY);
	put_node(dev, "sda1", "8:1\n");
	usbgrant_follow(&g, 0, dev);
	assert_int_equal(r->n, 1);
	assert_int_equal(faccessat(g.dir, "0/sda1", F_OK, 0), 0);
	assert_int_equal(faccessat(g.dir, "0/sdz", F_OK, 0), -1);
	usbgrant_follow(&g, 0, -1);
	assert_int_equal(r->n, 0);
	assert_int_equal(faccessat(g.dir, "0/sda1", F_OK, 0), -1);
	usbgrant_close(&g);
}

static int
remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static int
clean(void **state)
{
	return nftw(top, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(more_than_there_may_be), cmocka_unit_test(what_is_gone_is_taken_back) };

	return cmocka_run_group_tests(tests, NULL, clean);
}
