/* One noisy pBox and one victim: who is found, who is delayed, and when. */
#include <errno.h>

#include "check.h"
#include "clock.h"

static const size_t KEY = 42, OTHER = 43;

/* A victim in a thread of its own: it waits for KEY until it is told that it has it. */
static struct victim {
  pthread_t thread;
  pthread_barrier_t waits, may_enter;
  int psid;
  struct pbox_stats stats;
} victim;

static void *be_deferred(void *nothing) {
  victim.psid = create_pbox(half);
  activate_pbox(victim.psid);
  pass_ms(5); /* what a few microseconds of deferral are measured by */
  update_pbox(KEY, PBOX_PREPARE);
  pthread_barrier_wait(&victim.waits);
  pthread_barrier_wait(&victim.may_enter);
  update_pbox(KEY, PBOX_ENTER);
  freeze_pbox(victim.psid);
  victim.stats = stats_of(victim.psid);
  release_pbox(victim.psid);
  return nothing;
}

static void begin_victim(void) {
  pthread_barrier_init(&victim.waits, NULL, 2);
  pthread_barrier_init(&victim.may_enter, NULL, 2);
  pthread_create(&victim.thread, NULL, be_deferred, NULL);
  pthread_barrier_wait(&victim.waits);
}

static void end_victim(void) {
  pthread_barrier_wait(&victim.may_enter);
  pthread_join(victim.thread, NULL);
}

static int begin_noisy(size_t key) {
  int psid = create_pbox(half);
  activate_pbox(psid);
  update_pbox(key, PBOX_HOLD);
  return psid;
}

static void open_with(enum pbox_mode mode) {
  struct pbox_options options = {.mode = mode, .page = ""};
  close_pbox();
  CHECK(open_pbox(&options) == 0);
}

static void who_defers_another_beyond_its_goal_is_delayed_when_it_gives_back(void) {
  open_with(PBOX_MITIGATE);
  int noisy = begin_noisy(KEY);
  begin_victim();
  pass_ms(20);
  update_pbox(KEY, PBOX_UNHOLD);
  struct pbox_stats stats = stats_of(noisy);
  CHECK(stats.times_noisy == 1 && stats.penalties == 1);
  CHECK(stats.penalty_ns >= 50000);
  end_victim();
  CHECK(victim.stats.times_victim >= 1 && victim.stats.penalties == 0);
  CHECK(victim.stats.deferred_ns == 20000000);
  release_pbox(noisy);
}

static void a_penalty_waits_until_nothing_is_held(void) {
  open_with(PBOX_MITIGATE);
  int noisy = begin_noisy(KEY);
  update_pbox(OTHER, PBOX_HOLD);
  begin_victim();
  pass_ms(20);
  update_pbox(KEY, PBOX_UNHOLD);
  CHECK(stats_of(noisy).times_noisy == 1 && stats_of(noisy).penalties == 0);
  freeze_pbox(noisy); /* OTHER is held across activities */
  activate_pbox(noisy);
  CHECK(stats_of(noisy).penalties == 0);
  update_pbox(OTHER, PBOX_UNHOLD);
  CHECK(stats_of(noisy).penalties == 1);
  end_victim();
  release_pbox(noisy);
}

static void a_penalty_waits_until_nothing_is_waited_for(void) {
  open_with(PBOX_MITIGATE);
  int noisy = begin_noisy(KEY);
  begin_victim();
  pass_ms(20);
  update_pbox(OTHER, PBOX_PREPARE);
  update_pbox(KEY, PBOX_UNHOLD);
  CHECK(stats_of(noisy).penalties == 0);
  update_pbox(OTHER, PBOX_ENTER);
  freeze_pbox(noisy);
  CHECK(stats_of(noisy).penalties == 1);
  end_victim();
  release_pbox(noisy);
}

static void measuring_finds_and_delays_nobody(void) {
  open_with(PBOX_MEASURE);
  int noisy = begin_noisy(KEY);
  begin_victim();
  pass_ms(20);
  update_pbox(KEY, PBOX_UNHOLD);
  CHECK(stats_of(noisy).times_noisy == 1 && stats_of(noisy).penalties == 0);
  end_victim();
  release_pbox(noisy);
}

static void on_a_shared_thread_a_penalty_is_an_instant(void) {
  struct pbox_options options = {
      .page = "", .penalty_min_ns = 10000000000, .penalty_max_ns = 10000000000};
  close_pbox();
  CHECK(open_pbox(&options) == 0);
  int noisy = create_pbox(half);
  unbind_pbox(1, PBOX_EAGER);
  bind_pbox(1, PBOX_SHARED);
  activate_pbox(noisy);
  update_pbox(KEY, PBOX_HOLD);
  begin_victim();
  pass_ms(20);
  CHECK(penalty_pbox(noisy) == 0);
  update_pbox(KEY, PBOX_UNHOLD);
  struct pbox_stats stats = stats_of(noisy);
  CHECK(stats.penalties == 1);
  int64_t left_ns = penalty_pbox(noisy);
  CHECK(left_ns > 0 && (uint64_t)left_ns == stats.penalty_ns);
  end_victim();
  release_pbox(noisy);
}

static void who_holds_something_else_is_not_noisy(void) {
  open_with(PBOX_MITIGATE);
  int other = begin_noisy(OTHER);
  begin_victim();
  pass_ms(20);
  update_pbox(OTHER, PBOX_UNHOLD);
  CHECK(stats_of(other).times_noisy == 0);
  end_victim();
  release_pbox(other);
}

static void a_wait_within_the_goal_is_none(void) {
  open_with(PBOX_MITIGATE);
  int noisy = create_pbox((IsolationRule){PBOX_RELATIVE, PBOX_MAX, 50});
  activate_pbox(noisy);
  begin_victim(); /* it waits from the beginning on; the other one took the key only now */
  pass_ms(20);
  update_pbox(KEY, PBOX_HOLD);
  update_pbox(KEY, PBOX_UNHOLD); /* its share of the wait is nothing */
  CHECK(stats_of(noisy).times_noisy == 0);
  end_victim();
  release_pbox(noisy);
}

static void a_coroutine_is_told_of_by_its_psid(void) {
  open_with(PBOX_MITIGATE);
  int psid = create_pbox(half), other = create_pbox(half);
  CHECK(activate_pbox(psid) == 0 && activate_pbox(other) == 0);
  CHECK(update_pbox_of(psid, KEY, PBOX_PREPARE) == 0);
  pass_ms(5);
  CHECK(update_pbox_of(psid, KEY, PBOX_ENTER) == 0);
  CHECK(update_pbox_of(other, KEY, PBOX_HOLD) == 0);
  freeze_pbox(psid);
  CHECK(stats_of(psid).deferred_ns == 5000000);
  CHECK(release_pbox(psid) == 0 && release_pbox(other) == 0);
  CHECK(update_pbox_of(psid, KEY, PBOX_HOLD) == -ENOENT);
}

int main(void) {
  who_defers_another_beyond_its_goal_is_delayed_when_it_gives_back();
  a_penalty_waits_until_nothing_is_held();
  a_penalty_waits_until_nothing_is_waited_for();
  measuring_finds_and_delays_nobody();
  on_a_shared_thread_a_penalty_is_an_instant();
  who_holds_something_else_is_not_noisy();
  a_wait_within_the_goal_is_none();
  a_coroutine_is_told_of_by_its_psid();
  return 0;
}
