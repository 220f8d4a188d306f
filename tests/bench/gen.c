/*
 * The workload of the output benchmarks, run by every agent alike:
 *   gen stream BYTES   text in writes of 64 KiB: the fastest a program can log
 *   gen lines COUNT    lines of 80 bytes, one write(2) each: a chatty program that does not buffer
 */
#include "bench.h"

static char block[65536];

int
main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: gen stream BYTES | gen lines COUNT\n");
		return 2;
	}
	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = i % 80 == 79 ? '\n' : (char)('a' + i % 26);

	unsigned long n = number(argv[2]);
	size_t piece = strcmp(argv[1], "lines") == 0 ? 80 : sizeof(block);
	unsigned long left = piece == 80 ? n * 80 : n;
	while (left > 0) {
		ssize_t w = write(1, block, left < piece ? left : piece);
		if (w <= 0)
			return 1;
		left -= (unsigned long)w;
	}
	return 0;
}
