/* When a penalty may be taken, and what its time is counted as. */
#include <errno.h>

#include "driven.h"

static void open_with(uint64_t penalty_min_ns, enum pbox_holds holds) {
  open_again((struct pbox_options){
      .penalty_min_ns = penalty_min_ns, .penalty_max_ns = 10 * penalty_min_ns, .holds = holds});
}

/* A pBox that has deferred another one by KEY, which it still holds. */
static int begin_noisy(void) {
  int psid = begin();
  told(psid, KEY, PBOX_HOLD);
  begin_to_wait(KEY);
  pass_ms(20);
  return psid;
}

static void a_second_unit_keeps_a_penalty_off(void) {
  open_with(50000, PBOX_HOLDS_STAY);
  int psid = begin_noisy();
  told(psid, KEY, PBOX_HOLD);
  told(psid, KEY, PBOX_UNHOLD);
  CHECK(stats_of(psid).times_noisy == 1 && stats_of(psid).penalties == 0);
  told(psid, KEY, PBOX_UNHOLD);
  CHECK(stats_of(psid).penalties == 1);
}

static void a_unit_given_back_is_charged_once(void) {
  open_with(50000, PBOX_HOLDS_STAY);
  int psid = begin();
  told(psid, KEY, PBOX_HOLD);
  told(psid, KEY, PBOX_HOLD);
  int victim = begin_to_wait(KEY);
  pass_ms(20);
  told(psid, KEY, PBOX_UNHOLD);
  uint64_t first_ns = box_of(victim)->blamed[0].now_ns;
  told(psid, KEY, PBOX_UNHOLD);
  CHECK(first_ns == 20000000 && box_of(victim)->blamed[0].now_ns == first_ns);
}

static void holds_beyond_the_table_keep_a_penalty_off(void) {
  enum { MANY = HOLDS + 4, CONTENDED = MANY / 2 };
  open_with(50000, PBOX_HOLDS_STAY);
  int psid = begin();
  for (size_t i = 0; i < MANY; i++) told(psid, i == CONTENDED ? KEY : 100 + i, PBOX_HOLD);
  begin_to_wait(KEY);
  pass_ms(20);
  told(psid, KEY, PBOX_UNHOLD);
  CHECK(stats_of(psid).times_noisy == 1);
  for (size_t i = MANY; i-- > 0;) { /* in reverse, as row locks go */
    CHECK(stats_of(psid).penalties == 0);
    if (i != CONTENDED) told(psid, 100 + i, PBOX_UNHOLD);
  }
  CHECK(stats_of(psid).penalties == 1);
}

static void a_hold_of_any_age_keeps_a_penalty_off(void) {
  open_with(50000, PBOX_HOLDS_STAY);
  int psid = begin();
  told(psid, OTHER, PBOX_HOLD);
  box_of(psid)->holds[0].since_ns -= 11000000000u;
  told(psid, KEY, PBOX_HOLD);
  begin_to_wait(KEY);
  pass_ms(20);
  told(psid, KEY, PBOX_UNHOLD);
  CHECK(stats_of(psid).times_noisy == 1 && stats_of(psid).penalties == 0);
  told(psid, OTHER, PBOX_UNHOLD);
  CHECK(stats_of(psid).penalties == 1);
}

static void where_activities_leave_nothing_a_missing_unhold_costs_one_activity(void) {
  for (int holds = PBOX_HOLDS_STAY; holds <= PBOX_HOLDS_END; holds++) {
    open_with(50000, (enum pbox_holds)holds);
    int psid = begin_noisy();
    told(psid, OTHER, PBOX_HOLD);
    told(psid, KEY, PBOX_UNHOLD);
    CHECK(freeze_pbox(psid) == 0); /* the UNHOLD of OTHER is missing */
    bool end = holds == PBOX_HOLDS_END;
    CHECK(stats_of(psid).penalties == end && stats_of(psid).events_ignored == end);
  }
}

static void who_waits_for_what_it_holds_has_lost_an_unhold(void) {
  open_with(50000, PBOX_HOLDS_STAY);
  int psid = begin();
  told(psid, KEY, PBOX_HOLD); /* its UNHOLD is missing, others have it */
  begin_to_wait(KEY);
  pass_ms(20);
  told(psid, KEY, PBOX_PREPARE);
  told(psid, KEY, PBOX_ENTER);
  told(psid, KEY, PBOX_HOLD);
  told(psid, KEY, PBOX_UNHOLD);
  CHECK(stats_of(psid).times_noisy == 0); /* for that moment */
}

static void a_penalty_on_a_shared_thread_is_no_deferral(void) {
  open_with(60000000, PBOX_HOLDS_STAY);
  int psid = begin_noisy();
  told(psid, KEY, PBOX_UNHOLD);
  CHECK(freeze_pbox(psid) == 0);
  struct pbox_stats before = stats_of(psid);
  int other = begin();
  told(other, OTHER, PBOX_HOLD);

  CHECK(penalty_pbox(psid) == 60000000);
  CHECK(activate_pbox(psid) == 0);
  told(psid, OTHER, PBOX_PREPARE);
  pass_ms(20); /* within the penalty */
  told(other, OTHER, PBOX_UNHOLD);
  CHECK(stats_of(other).times_noisy == 0);
  pass_ms(60); /* 40 ms of it, and 20 ms after it */
  told(psid, OTHER, PBOX_ENTER);
  CHECK(freeze_pbox(psid) == 0);
  struct pbox_stats after = stats_of(psid);
  CHECK(after.deferred_ns - before.deferred_ns == 20000000);
  CHECK(after.executed_ns - before.executed_ns == 20000000);
}

static void a_penalty_on_a_shared_thread_is_no_execution(void) {
  open_with(30000000, PBOX_HOLDS_STAY);
  int psid = begin_noisy(); /* for 25 ms */
  told(psid, KEY, PBOX_UNHOLD);
  CHECK(stats_of(psid).penalty_ns == 30000000);
  pass_ms(15);
  told(psid, OTHER, PBOX_HOLD); /* the program does not wait for its end */
  pass_ms(30);
  CHECK(penalty_pbox(psid) == 0 && freeze_pbox(psid) == 0);
  CHECK(stats_of(psid).executed_ns == 40000000); /* with the 15 ms after the penalty */
}

static void a_short_penalty_does_not_end_a_long_one(void) {
  open_with(50000, PBOX_HOLDS_STAY);
  int psid = begin();
  told(psid, KEY, PBOX_HOLD);
  told(psid, KEY, PBOX_UNHOLD);
  uint64_t until_ns = now_ns() + 1000000000;
  slot_of(psid)->not_before_ns = until_ns;
  box_of(psid)->pending_ns = 50000;
  serve_penalty(box_of(psid), slot_of(psid));
  CHECK(stats_of(psid).penalties == 1 && slot_of(psid)->not_before_ns == until_ns);
}

/* sqrt(900 ms * 100 ms) - 100 ms = 200 ms */
static void a_complaint_heard_between_activities_is_measured_by_the_last_one(void) {
  open_again((struct pbox_options){.mode = PBOX_MEASURE, .penalty_max_ns = 1000000000});
  int psid = begin();
  CHECK(freeze_pbox(psid) == 0);
  struct box *box = box_of(psid);
  box->recent[0].executed_ns = 100000000;
  box->complaint = (struct complaint){
      .key = KEY, .deferred_ns = 900000000, .ratio = 0.9, .goal = 0.5, .psid = (uint32_t)psid};
  CHECK(activate_pbox(psid) == 0);
  CHECK(stats_of(psid).times_noisy == 1);
  uint64_t length_ns = 0;
  for (int i = 0; i < REMEMBERED; i++)
    if (box->remembered[i].key == KEY) length_ns = box->remembered[i].length_ns;
  CHECK(length_ns == 200000000);
}

int main(void) {
  a_second_unit_keeps_a_penalty_off();
  a_unit_given_back_is_charged_once();
  holds_beyond_the_table_keep_a_penalty_off();
  a_hold_of_any_age_keeps_a_penalty_off();
  where_activities_leave_nothing_a_missing_unhold_costs_one_activity();
  who_waits_for_what_it_holds_has_lost_an_unhold();
  a_penalty_on_a_shared_thread_is_no_deferral();
  a_penalty_on_a_shared_thread_is_no_execution();
  a_short_penalty_does_not_end_a_long_one();
  a_complaint_heard_between_activities_is_measured_by_the_last_one();
  close_pbox();
  return 0;
}
