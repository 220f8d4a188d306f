/* The lives of state files: statelife.c has most of them and main, statelife_up.c those of upgrades, events and results. */
#ifndef EDGEWARD_STATELIFE_H
#define EDGEWARD_STATELIFE_H

#include <stdbool.h>

#define NEED(what)	do { if (!(what)) wrong(__FILE__, __LINE__, #what); } while (0)

extern int dir;			/* the state directory of this life */

_Noreturn void wrong(const char *file, int line, const char *what);

void job_write(bool is_new);
const char *job_check(void);
void upgrade_write(bool is_new);
const char *upgrade_check(void);
void told_write(bool is_new);
const char *told_check(void);
void events_write(bool is_new);
const char *events_check(void);
void result_write(bool is_new);
const char *result_check(void);

#endif
