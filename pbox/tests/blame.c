/* Who is charged with a victim's waits, and who no longer is. */
#include <errno.h>
#include <signal.h>

#include "driven.h"

static void open_new(void) { open_again((struct pbox_options){.mode = PBOX_MEASURE}); }

/* `noisy` holds KEY for a while, for which `victim` waits. */
static void defer(int noisy, uint64_t ms) {
  told(noisy, KEY, PBOX_HOLD);
  pass_ms(ms);
  told(noisy, KEY, PBOX_UNHOLD);
}

/* How often it is noisy once it has heard what others complain of. */
static uint64_t times_noisy(int psid) {
  CHECK(activate_pbox(psid) == 0);
  return stats_of(psid).times_noisy;
}

static int in_the_slot_of(int old) {
  CHECK(release_pbox(old) == 0);
  int psid = begin();
  CHECK((psid & 0xffff) == (old & 0xffff));
  return psid;
}

static void who_gets_the_slot_of_a_noisy_one_is_not_charged_for_it(void) {
  open_new();
  int noisy = begin(), victim = begin_to_wait(KEY);
  defer(noisy, 20);
  CHECK(stats_of(noisy).times_noisy == 1);
  int newcomer = in_the_slot_of(noisy);
  defer(newcomer, 0);
  CHECK(stats_of(newcomer).times_noisy == 0);
  told(victim, KEY, PBOX_ENTER);
}

static void nobody_complains_of_who_gets_the_slot_of_a_noisy_one(void) {
  open_new();
  int noisy = begin(), victim = begin_to_wait(KEY);
  slot_of(victim)->goal = 1e9; /* at the UNHOLD nothing is amiss */
  defer(noisy, 20);
  told(victim, KEY, PBOX_ENTER);
  int newcomer = in_the_slot_of(noisy);
  slot_of(victim)->goal = 0.5; /* but at the activity's end something is */
  CHECK(freeze_pbox(victim) == 0);
  CHECK(times_noisy(newcomer) == 0);
}

static void a_complaint_that_comes_too_late_is_nobodys(void) {
  open_new();
  int old = begin(), newcomer = in_the_slot_of(old);
  box_of(newcomer)->complaint =
      (struct complaint){.key = KEY, .deferred_ns = 1000, .psid = (uint32_t)old};
  CHECK(times_noisy(newcomer) == 0);
}

/* A victim whose waits were one pBox's fault, which is gone, and then wait for another. */
static int forsaken_victim(void) {
  int gone = begin(), filler, victim = begin_to_wait(KEY);
  defer(gone, 60);
  told(victim, KEY, PBOX_ENTER);
  CHECK(freeze_pbox(victim) == 0);
  filler = in_the_slot_of(gone);
  CHECK(freeze_pbox(filler) == 0);
  CHECK(activate_pbox(victim) == 0);
  pass_ms(5);
  told(victim, KEY, PBOX_PREPARE);
  return victim;
}

static void the_past_of_one_that_has_ended_shields_nobody(void) {
  open_new();
  forsaken_victim();
  int noisy = begin();
  defer(noisy, 20);
  CHECK(stats_of(noisy).times_noisy == 1);
}

static void complaints_go_to_those_who_live(void) {
  open_new();
  int victim = forsaken_victim(), noisy = begin();
  slot_of(victim)->goal = 1e9;
  defer(noisy, 20);
  slot_of(victim)->goal = 0.5;
  told(victim, KEY, PBOX_ENTER);
  CHECK(freeze_pbox(victim) == 0);
  CHECK(times_noisy(noisy) == 1);
}

static void who_had_a_small_part_is_not_complained_of(void) {
  open_new();
  int victim = forsaken_victim(), passer_by = begin();
  pass_ms(20);
  defer(passer_by, 0);
  told(victim, KEY, PBOX_ENTER);
  CHECK(freeze_pbox(victim) == 0);
  CHECK(stats_of(victim).level > 0.5);
  CHECK(times_noisy(passer_by) == 0);
}

static struct {
  int psid;
  pid_t thread;
} dead;

static void *wait_and_end(void *nothing) {
  dead.thread = gettid();
  dead.psid = begin();
  CHECK(update_pbox(KEY, PBOX_PREPARE) == 0);
  return nothing;
}

static void who_waits_for_ever_in_a_thread_that_has_ended_is_no_victim(void) {
  open_new();
  int noisy = begin();
  pthread_t thread;
  pthread_create(&thread, NULL, wait_and_end, NULL);
  pthread_join(thread, NULL);
  while (tgkill(getpid(), dead.thread, 0) == 0) sleep_ms(1); /* the kernel is not quite done */
  for (int i = 0; i < 3; i++) defer(noisy, 20);
  CHECK(stats_of(noisy).times_noisy == 0);
  CHECK(!seats_taken(place_of(KEY)));
  CHECK(release_pbox(dead.psid) == 0);
}

static void a_wait_that_was_abandoned_makes_nobody_noisy(void) {
  open_new();
  int victim = begin_to_wait(KEY), noisy = begin();
  box_of(victim)->waits[0].since_ns -= ABANDONED_NS;
  slot_of(victim)->activity_start_ns -= 2 * ABANDONED_NS;
  defer(noisy, 20);
  CHECK(stats_of(noisy).times_noisy == 0);
}

int main(void) {
  who_gets_the_slot_of_a_noisy_one_is_not_charged_for_it();
  nobody_complains_of_who_gets_the_slot_of_a_noisy_one();
  a_complaint_that_comes_too_late_is_nobodys();
  the_past_of_one_that_has_ended_shields_nobody();
  complaints_go_to_those_who_live();
  who_had_a_small_part_is_not_complained_of();
  who_waits_for_ever_in_a_thread_that_has_ended_is_no_victim();
  a_wait_that_was_abandoned_makes_nobody_noisy();
  close_pbox();
  return 0;
}
