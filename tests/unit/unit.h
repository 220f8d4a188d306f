/* What cmocka wants included before it, once. */
#ifndef EDGEWARD_UNIT_H
#define EDGEWARD_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT(a)	(sizeof(a) / sizeof((a)[0]))

#endif
