/* What the floor programs and the sink share: time, percentiles, blocking I/O that gives up with a message. */
#ifndef EDGEWARD_BENCH_H
#define EDGEWARD_BENCH_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static inline double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline void
die(const char *what)
{
	perror(what);
	exit(1);
}

static inline int
compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The p-quantile of n values; sorts them. */
static inline double
quantile(double *values, size_t n, double p)
{
	qsort(values, n, sizeof(*values), compare_doubles);
	return values[(size_t)(p * (double)(n - 1) + 0.5)];
}

/* One figure for the script that reads us. */
static inline void
report(const char *metric, double value)
{
	printf("%s\t%.10g\n", metric, value);
	fflush(stdout);
}

static inline unsigned long
number(const char *text)
{
	char *end;
	unsigned long v = strtoul(text, &end, 10);

	if (end == text || *end != '\0') {
		fprintf(stderr, "not a number: %s\n", text);
		exit(2);
	}
	return v;
}

#endif
