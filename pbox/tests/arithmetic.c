/* The formulas of the paper and of its departures, by numbers worked out by hand. */
#include <math.h>
#include <string.h>

#include "check.h"
#include "internal.h"

static bool near(double a, double b) { return fabs(a - b) < 1e-9; }

static void a_level_is_deferred_over_undeferred_time(void) {
  CHECK(near(level_of(1, 3), 0.5)); /* 1 / (3 - 1) */
  CHECK(near(level_of(3, 4), 3.0));
  CHECK(level_of(0, 5) == 0);
  CHECK(level_of(0, 0) == 0);
}

static void more_deferral_than_time_is_a_large_finite_level(void) {
  CHECK(level_of(5, 5) == 1e6);
  CHECK(level_of(9, 5) == 1e6);
}

static void a_first_penalty_is_the_papers_and_0_where_that_is_negative(void) {
  CHECK(first_penalty(900, 100) == 200); /* sqrt(900 * 100) - 100 */
  CHECK(first_penalty(100, 900) == 0);   /* sqrt(90000) - 900 < 0 */
  CHECK(first_penalty(500, 0) == 0);
}

static void the_score_rule_lengthens_while_penalties_do_not_help(void) {
  struct penalty last = {.key = 1, .length_ns = 1000, .ratio = 0.5};
  struct effect worse = {.ratio = 0.6, .goal = 0.5, .deferred_ns = 2000};
  CHECK(near(penalty_step(&last, &worse), 1.2)); /* score 1: 1 + 1/5 */
  CHECK(near(penalty_step(&last, &worse), 1.4)); /* 0.6 > 0.5 still: score 2 */
  struct effect better = {.ratio = 0.4, .goal = 0.5, .deferred_ns = 2000};
  CHECK(near(penalty_step(&last, &better), 1.2));
  CHECK(near(penalty_step(&last, &better), 1.0));
  CHECK(near(penalty_step(&last, &better), 1.0)); /* not below 0 */
}

static void the_gap_rule_is_taken_when_deferral_is_ten_times_the_penalty(void) {
  /* f = 0.75 / 0.25 = 3, gap = 3 - 1 = 2, delta = 1 - 0.5 / 0.75 = 1/3: 2 / (1/3) = 6 */
  struct penalty last = {.key = 1, .length_ns = 1000, .ratio = 0.5};
  struct effect effect = {.ratio = 0.75, .goal = 1.0, .deferred_ns = 10000};
  CHECK(near(penalty_step(&last, &effect), 6.0));
  CHECK(last.score == 0);
}

static void a_penalty_that_helped_makes_a_positive_step(void) {
  /* f = 1, gap = 0.5, delta = 1 - 0.75 / 0.5 = -0.5: 0.5 / 0.5 = 1, printed it is -1 */
  struct penalty last = {.key = 1, .length_ns = 1000, .ratio = 0.75};
  struct effect effect = {.ratio = 0.5, .goal = 0.5, .deferred_ns = 10000};
  CHECK(near(penalty_step(&last, &effect), 1.0));
}

static void steps_stay_between_a_half_and_ten(void) {
  struct penalty last = {.key = 1, .length_ns = 10, .ratio = 0.9};
  struct effect unchanged = {.ratio = 0.9, .goal = 0.5, .deferred_ns = 1000}; /* delta 0 */
  CHECK(penalty_step(&last, &unchanged) == 10.0);
  struct effect barely = {.ratio = 0.9001, .goal = 0.5, .deferred_ns = 1000};
  CHECK(penalty_step(&last, &barely) == 10.0);
  struct effect fine = {.ratio = 0.1, .goal = 0.5, .deferred_ns = 1000}; /* gap < 0 */
  CHECK(penalty_step(&last, &fine) == 0.5);
  struct effect nothing = {.ratio = 0, .goal = 0.5, .deferred_ns = 1000};
  CHECK(penalty_step(&last, &nothing) == 0.5);
}

/* RECENT activities of 1 unit undeferred each, with T_d and so levels of 1, 2 ... 64, shuffled. */
static void a_metric_is_the_mean_the_95th_percentile_or_the_largest(void) {
  static struct box box;
  memset(&box, 0, sizeof box);
  CHECK(recent_level(&box, PBOX_AVERAGE) == -1);
  for (unsigned i = 0; i < RECENT; i++) {
    box.level[(i * 37) % RECENT] = (float)(i + 1);
    box.recent_deferred_ns += i + 1;
    box.recent_executed_ns += i + 2;
  }
  box.n_recent = RECENT;
  CHECK(recent_level(&box, PBOX_MAX) == 64);
  CHECK(recent_level(&box, PBOX_TAIL) == 61);              /* ceil(0.95 * 64) = 61 */
  CHECK(near(recent_level(&box, PBOX_AVERAGE), 2080 / 64.0)); /* 64 * 65 / 2 over 64 */
  box.n_recent = 1;
  box.level[0] = 7;
  CHECK(recent_level(&box, PBOX_TAIL) == 7);
}

int main(void) {
  a_level_is_deferred_over_undeferred_time();
  more_deferral_than_time_is_a_large_finite_level();
  a_first_penalty_is_the_papers_and_0_where_that_is_negative();
  the_score_rule_lengthens_while_penalties_do_not_help();
  the_gap_rule_is_taken_when_deferral_is_ten_times_the_penalty();
  a_penalty_that_helped_makes_a_positive_step();
  steps_stay_between_a_half_and_ten();
  a_metric_is_the_mean_the_95th_percentile_or_the_largest();
  return 0;
}
