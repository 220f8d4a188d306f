/* Runs a fuzz target over every file of a directory (and over the empty input) as an ordinary test. */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/fdutil.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INPUT_MAX	(2u << 20)

int
main(int argc, char **argv)
{
	DIR *dir = argc == 2 ? opendir(argv[1]) : NULL;
	const struct dirent *de;
	unsigned n = 0;

	if (dir == NULL) {
		fprintf(stderr, "usage: %s CORPUS-DIRECTORY\n", argv[0]);
		return 2;
	}
	LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
	while ((de = readdir(dir)) != NULL) {
		_cleanup_free_ uint8_t *data = NULL;
		size_t len;

		if (de->d_name[0] == '.')
			continue;
		if (fd_read_file(dirfd(dir), de->d_name, INPUT_MAX, &data, &len) < 0) {
			fprintf(stderr, "cannot read %s\n", de->d_name);
			return 1;
		}
		/* An exact copy, so that the sanitizer sees a read beyond the end. */
		_cleanup_free_ uint8_t *copy = malloc(len > 0 ? len : 1);

		if (copy == NULL)
			return 1;
		memcpy(copy, data, len);
		LLVMFuzzerTestOneInput(copy, len);
		n++;
	}
	closedir(dir);
	printf("%u inputs replayed\n", n);
	return n > 0 ? 0 : 1;
}
