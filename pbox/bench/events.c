/*
 * events.c - what the library's calls take when nobody contends (the paper's Figure 10).
 *
 * One JSON object: update_ns is the mean of the four events of one pass through a resource,
 * median over batches; wait_pair_ns and hold_pair_ns are its halves, create_ns is a pBox in a
 * slot that has been used before, create_first_ns one in fresh memory (page faults included).
 */
#include <stdbool.h>
#include <stdio.h>

#include "batches.h"
#include "pbox.h"

enum { BOXES = 512, TURNS = 101 };

static const IsolationRule rule = {PBOX_RELATIVE, PBOX_AVERAGE, 50};
static int resource, psid;

static void pass(void) {
  update_pbox((size_t)&resource, PBOX_PREPARE);
  update_pbox((size_t)&resource, PBOX_ENTER);
  update_pbox((size_t)&resource, PBOX_HOLD);
  update_pbox((size_t)&resource, PBOX_UNHOLD);
}

static void wait_pair(void) {
  update_pbox((size_t)&resource, PBOX_PREPARE);
  update_pbox((size_t)&resource, PBOX_ENTER);
}

static void hold_pair(void) {
  update_pbox((size_t)&resource, PBOX_HOLD);
  update_pbox((size_t)&resource, PBOX_UNHOLD);
}

static void activity(void) {
  activate_pbox(psid);
  freeze_pbox(psid);
}

static void rebind(void) {
  unbind_pbox(7, PBOX_EAGER);
  bind_pbox(7, PBOX_SHARED);
}

static void rebind_lazily(void) {
  unbind_pbox(7, PBOX_LAZY);
  bind_pbox(7, PBOX_SHARED);
}

static void clock_only(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
}

static double create_ns(double *first) {
  static int made[BOXES];
  static double per_call[TURNS];
  for (int turn = 0; turn < TURNS; turn++) {
    double start = clock_ns();
    for (int i = 0; i < BOXES; i++) made[i] = create_pbox(rule);
    per_call[turn] = (clock_ns() - start) / BOXES;
    for (int i = 0; i < BOXES; i++)
      if (release_pbox(made[i])) exit(1);
  }
  *first = per_call[0];
  qsort(per_call, TURNS, sizeof per_call[0], by_size);
  return per_call[TURNS / 2];
}

/* Without a look at each result, which is part of no program's call. */
static bool all_were_heard(void) {
  struct pbox_stats stats;
  return stat_pbox(psid, &stats) == 0 && stats.events_ignored == 0 &&
         stats.activities == BATCHES * CALLS && update_pbox((size_t)&resource, PBOX_HOLD) == 0;
}

int main(void) {
  struct pbox_options options = {.page = "/dev/shm/pbox-bench-%p.page"};
  double first;
  if (open_pbox(&options) || !pbox_page_path()) return 1;
  double create = create_ns(&first);
  psid = create_pbox(rule);
  double act = median_ns(activity);
  activate_pbox(psid);
  double update = median_ns(pass) / 4, wait = median_ns(wait_pair), hold = median_ns(hold_pair);
  double eager = median_ns(rebind), lazy = median_ns(rebind_lazily);
  if (!all_were_heard()) {
    fprintf(stderr, "calls were refused: that is soon done, and none of what is measured\n");
    return 1;
  }
  printf("{\"update_ns\": %.1f, \"wait_pair_ns\": %.1f, \"hold_pair_ns\": %.1f, "
         "\"create_ns\": %.1f, \"create_first_ns\": %.1f, \"activity_ns\": %.1f, "
         "\"rebind_ns\": %.1f, \"rebind_lazy_ns\": %.1f, \"clock_ns\": %.1f}\n",
         update, wait, hold, create, first, act, eager, lazy, median_ns(clock_only));
  return 0;
}
