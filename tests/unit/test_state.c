/*
 * B52: the life of a workload has no transition nobody wrote down. It could go wrong in the table of state.c and nowhere else:
 * life.c asks it for every event and carries out what it says.
 */
#include <stdbool.h>
#include <stdlib.h>

#include "tests/unit/unit.h"
#include "workerd/state.h"

#define STOPS	(ACT_SIGNAL | ACT_KILL | ACT_REMEMBER)

static void
every_pair_is_written_down(void **state)
{
	for (int s = 0; s < STATES; s++) {
		for (int e = 0; e < EVENTS; e++) {
			struct step step = state_step((enum state)s, (enum event)e);

			assert_in_range(step.next, 0, STATES - 1);
			/* a row that was forgotten reads as "back to ACCEPTED, nothing to do" */
			assert_true(step.next >= s || (s == ST_DRAINING && e == EV_NEXT));
			if ((step.actions & ACT_BAD) != 0)
				assert_int_equal(step.actions, ACT_BAD);
			/* things that come with a state, and only with it */
			assert_int_equal((step.actions & ACT_FORGET) != 0, step.next == ST_GONE && s != ST_GONE);
			assert_int_equal((step.actions & ACT_FINISH) != 0, step.next == ST_ENDED && s != ST_ENDED);
			assert_int_equal((step.actions & ACT_DRAIN) != 0, step.next == ST_DRAINING && s != ST_DRAINING);
			/* nothing is signalled that does not live */
			if (s >= ST_DRAINING || s == ST_ACCEPTED)
				assert_int_equal(step.actions & (ACT_SIGNAL | ACT_KILL), 0);
		}
	}
}

static void
terminal_means_terminal(void **state)
{
	for (int e = 0; e < EVENTS; e++) {
		assert_true(state_step(ST_ENDED, (enum event)e).next >= ST_ENDED);
		assert_int_equal(state_step(ST_GONE, (enum event)e).next, ST_GONE);
		assert_int_equal(state_step(ST_GONE, (enum event)e).actions, 0);
	}
}

static void
a_stop_is_never_lost(void **state)
{
	static const enum event stops[] = { EV_SIGNAL, EV_KILL, EV_TIMEOUT, EV_LIMIT, EV_DISOWN };

	for (size_t i = 0; i < COUNT(stops); i++)
		for (int s = ST_ACCEPTED; s <= ST_RUNNING; s++)
			assert_true((state_step((enum state)s, stops[i]).actions & STOPS) != 0);
	assert_true((state_step(ST_ACCEPTED, EV_LAUNCHED).actions & ACT_FLUSH) != 0);
}

/* A small model: what the launcher and the processes can do, in any order with what hub, clock and operator can do. */
struct model {
	enum state state;
	bool asked, held, execed, dead, answered;
	int finishes, forgets, runs;
};

static bool
possible(const struct model *m, enum event e)
{
	switch (e) {
	case EV_LAUNCHED:
	case EV_REFUSED:
		return m->asked && !m->held && !m->answered;
	case EV_STARTED:
		return m->held && !m->execed && !m->dead;
	case EV_FAILED:
		return m->held && !m->execed && !m->dead;
	case EV_TREE_GONE:
		return m->held && !m->dead;
	case EV_DRAINED:
		return m->state == ST_DRAINING;
	case EV_NEXT:		/* life.c makes these three of EV_DRAINED and EV_REFUSED: stages_follow() */
	case EV_NO_MORE:
	case EV_UNPREPARED:
		return false;
	case EV_SIGNAL:
	case EV_KILL:
	case EV_TIMEOUT:
	case EV_LIMIT:
	case EV_DISOWN:
	case EV_GRACE:
	case EV_DELIVERED:
		return true;
	case EVENTS:
		break;
	}
	return false;
}

static void
apply(struct model *m, enum event e)
{
	struct step step = state_step(m->state, e);

	assert_int_equal(step.actions & ACT_BAD, 0);
	m->held = m->held || e == EV_LAUNCHED;
	m->answered = m->answered || e == EV_LAUNCHED || e == EV_REFUSED;
	m->execed = m->execed || e == EV_STARTED;
	m->dead = m->dead || e == EV_FAILED || e == EV_TREE_GONE;
	m->runs += (step.actions & ACT_RUN) != 0;
	m->finishes += (step.actions & ACT_FINISH) != 0;
	m->forgets += (step.actions & ACT_FORGET) != 0;
	m->state = (enum state)step.next;
	/* a process that lives is never forgotten, one that is dead never counts as running */
	assert_true(m->state < ST_DRAINING || m->dead || m->state == ST_GONE);
	assert_true(!m->held || m->dead || m->state < ST_DRAINING);
	assert_true(m->finishes <= 1 && m->forgets <= 1 && m->runs <= 1);
}

static void
random_sequences(void **state)
{
	srandom(52);
	for (int i = 0; i < 10000; i++) {
		struct model m = { .asked = true };

		for (int n = 0; n < 40; n++) {
			enum event e = (enum event)(random() % EVENTS);

			if (possible(&m, e))
				apply(&m, e);
		}
		/* let it end: the processes die, the output is read, the hub confirms */
		if (possible(&m, EV_LAUNCHED))
			apply(&m, EV_LAUNCHED);
		if (possible(&m, EV_TREE_GONE))
			apply(&m, EV_TREE_GONE);
		if (possible(&m, EV_DRAINED))
			apply(&m, EV_DRAINED);
		if (m.state != ST_GONE)
			apply(&m, EV_DELIVERED);
		assert_int_equal(m.state, ST_GONE);
		assert_int_equal(m.forgets, 1);
		assert_int_equal(m.held && m.runs > 0, m.finishes == 1);
	}
}

/* A job: one process after the other, and a refusal or an end in between. */
static void
stages_follow(void **state)
{
	assert_int_equal(state_step(ST_DRAINING, EV_NEXT).next, ST_ACCEPTED);
	assert_int_equal(state_step(ST_DRAINING, EV_NEXT).actions, ACT_LAUNCH);
	assert_int_equal(state_step(ST_DRAINING, EV_UNPREPARED).next, ST_GONE);
	assert_int_equal(state_step(ST_DRAINING, EV_UNPREPARED).actions, ACT_REFUSE | ACT_FORGET);
	assert_int_equal(state_step(ST_ACCEPTED, EV_NO_MORE).next, ST_ENDED);
	assert_int_equal(state_step(ST_ACCEPTED, EV_NO_MORE).actions, ACT_FINISH);
	for (int s = ST_ACCEPTED; s < STATES; s++) {
		if (s != ST_DRAINING) {
			assert_int_equal(state_step((enum state)s, EV_NEXT).next, s);
			assert_int_equal(state_step((enum state)s, EV_UNPREPARED).next, s);
		}
		if (s != ST_ACCEPTED)
			assert_int_equal(state_step((enum state)s, EV_NO_MORE).next, s);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stages_follow),
		cmocka_unit_test(every_pair_is_written_down),
		cmocka_unit_test(terminal_means_terminal),
		cmocka_unit_test(a_stop_is_never_lost),
		cmocka_unit_test(random_sequences),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
