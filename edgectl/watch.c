#include "edgectl/watch.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "common/parse.h"

int
watch_seconds(const char *text, uint32_t *ret_seconds)
{
	*ret_seconds = 2;
	if (text == NULL || parse_u32(text, 1, 3600, ret_seconds) == 0)
		return 0;
	fprintf(stderr, "edgectl: --watch wants 1 to 3600 seconds, not %s\n", out_safe(text));
	return -1;
}

int
watch_run(struct edgectl *ctl, int (*run)(struct edgectl *ctl, int argc, char **argv), int argc, char **argv, uint32_t seconds)
{
	int code;

	for (;;) {
		if (seconds != 0 && isatty(STDOUT_FILENO))
			fputs("\033[H\033[2J", stdout);
		if (loop_new(&ctl->loop) < 0)
			return EXIT_FAILED;
		code = run(ctl, argc, argv);
		loop_free(ctl->loop);
		if (seconds == 0 || fflush(stdout) != 0 || ferror(stdout))
			return code;
		nanosleep(&(struct timespec){ .tv_sec = seconds }, NULL);
	}
}
