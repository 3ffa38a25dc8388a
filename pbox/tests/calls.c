/* The life of a pBox, and what becomes of wrong calls. */
#include <errno.h>
#include <string.h>

#include "driven.h"

static void rules_out_of_range_are_refused(void) {
  IsolationRule rule = half;
  rule.isolation_level = 0;
  CHECK(create_pbox(rule) == -EINVAL);
  rule.isolation_level = 100001;
  CHECK(create_pbox(rule) == -EINVAL);
  rule = half;
  rule.metric = (enum pbox_metric)3;
  CHECK(create_pbox(rule) == -EINVAL);
  struct pbox_options options = {.max_pboxes = 65536};
  CHECK(open_pbox(&options) == -EINVAL);
  options = (struct pbox_options){.penalty_min_ns = 2, .penalty_max_ns = 1};
  CHECK(open_pbox(&options) == -EINVAL);
  options = (struct pbox_options){.penalty_max_ns = 3600000000001};
  CHECK(open_pbox(&options) == -EINVAL);
  options = (struct pbox_options){.holds = (enum pbox_holds)2};
  CHECK(open_pbox(&options) == -EINVAL);
}

static void deferral_is_the_time_from_prepare_to_enter(void) {
  int psid = create_pbox(half);
  CHECK(psid > 0);
  CHECK(activate_pbox(psid) == 0);
  CHECK(update_pbox(KEY, PBOX_PREPARE) == 0);
  pass_ms(20);
  CHECK(update_pbox(KEY, PBOX_ENTER) == 0);
  pass_ms(20);
  CHECK(freeze_pbox(psid) == 0);
  struct pbox_stats stats = stats_of(psid);
  CHECK(stats.activities == 1 && stats.events_ignored == 0);
  CHECK(stats.deferred_ns == 20000000 && stats.executed_ns == 40000000);
  CHECK(stats.level > 0);
  CHECK(release_pbox(psid) == 0);
}

static void missing_and_wrong_calls_are_counted_and_change_nothing(void) {
  CHECK(update_pbox(KEY, PBOX_HOLD) == -ENOENT); /* none is bound */
  int psid = create_pbox(half);
  CHECK(update_pbox(KEY, PBOX_PREPARE) == -EALREADY); /* no activity yet */
  CHECK(freeze_pbox(psid) == -EALREADY);
  activate_pbox(psid);
  CHECK(update_pbox(0, PBOX_HOLD) == -EINVAL);
  CHECK(update_pbox(KEY, (enum pbox_event)4) == -EINVAL);
  CHECK(update_pbox(KEY, PBOX_ENTER) == -EALREADY);
  CHECK(update_pbox(KEY, PBOX_UNHOLD) == -EALREADY);
  CHECK(stats_of(psid).events_ignored == 4);
  CHECK(update_pbox(KEY, PBOX_PREPARE) == 0);
  CHECK(update_pbox(KEY, PBOX_PREPARE) == 0); /* the ENTER between is missing */
  CHECK(update_pbox(KEY, PBOX_HOLD) == 0);    /* and here, too: it no longer waits */
  CHECK(update_pbox(KEY, PBOX_ENTER) == -EALREADY);
  CHECK(stats_of(psid).events_ignored == 7);
  CHECK(activate_pbox(psid) == 0); /* its freeze is missing */
  CHECK(stats_of(psid).activities == 1);
  release_pbox(psid);
}

static void a_wait_without_enter_ends_with_its_activity_and_is_not_counted(void) {
  int psid = create_pbox(half);
  activate_pbox(psid);
  update_pbox(KEY, PBOX_PREPARE);
  pass_ms(5);
  freeze_pbox(psid);
  CHECK(stats_of(psid).deferred_ns == 0);
  release_pbox(psid);
}

static void more_resources_at_once_than_fit_do_no_harm(void) {
  int psid = create_pbox(half);
  activate_pbox(psid);
  for (size_t key = 1; key <= 100; key++) update_pbox(key, PBOX_HOLD);
  for (size_t key = 1; key <= 100; key++) update_pbox(key, PBOX_PREPARE);
  for (size_t key = 1; key <= 100; key++) update_pbox(key, PBOX_ENTER);
  for (size_t key = 1; key <= 100; key++) update_pbox(key, PBOX_UNHOLD);
  CHECK(freeze_pbox(psid) == 0);
  CHECK(release_pbox(psid) == 0);
}

static void an_old_psid_is_nobody(void) {
  int old = create_pbox(half);
  CHECK(release_pbox(old) == 0);
  int psid = create_pbox(half); /* in the same slot */
  CHECK(psid != old && (psid & 0xffff) == (old & 0xffff));
  struct pbox_stats stats;
  CHECK(activate_pbox(old) == -ENOENT && freeze_pbox(old) == -ENOENT);
  CHECK(release_pbox(old) == -ENOENT && stat_pbox(old, &stats) == -ENOENT);
  CHECK(activate_pbox(-1) == -ENOENT && activate_pbox(0x7fffffff) == -ENOENT);
  release_pbox(psid);
}

static void a_full_table_refuses_and_says_so(void) {
  close_pbox();
  struct pbox_options options = {.max_pboxes = 2, .page = ""};
  CHECK(open_pbox(&options) == 0);
  CHECK(open_pbox(&options) == -EALREADY);
  CHECK(pbox_page_path() == NULL);
  int a = create_pbox(half), b = create_pbox(half);
  CHECK(create_pbox(half) == -ENOSPC);
  CHECK(release_pbox(a) == 0 && release_pbox(b) == 0);
  CHECK(create_pbox(half) > 0);
  close_pbox();
}

static void a_pbox_is_found_by_what_it_is_filed_under(void) {
  int psid = create_pbox(half);
  CHECK(unbind_pbox(7, PBOX_EAGER) == psid);
  CHECK(unbind_pbox(7, PBOX_EAGER) == -ENOENT);
  CHECK(bind_pbox(8, PBOX_SHARED) == -ENOENT);
  CHECK(bind_pbox(7, (enum pbox_bind_flags)2) == -EINVAL);
  CHECK(bind_pbox(7, PBOX_SHARED) == psid);
  CHECK(unbind_pbox(9, PBOX_LAZY) == psid); /* now under 9 alone */
  CHECK(bind_pbox(7, PBOX_SHARED) == -ENOENT);
  CHECK(update_pbox(KEY, PBOX_HOLD) == -ENOENT); /* detached, even if lazily */
  CHECK(bind_pbox(9, PBOX_SHARED) == psid);
  release_pbox(psid);
  CHECK(bind_pbox(9, PBOX_SHARED) == -ENOENT);
}

static void *bind_7(void *psid) {
  CHECK(bind_pbox(7, PBOX_SHARED) == *(int *)psid);
  CHECK(activate_pbox(*(int *)psid) == 0);
  unbind_pbox(7, PBOX_LAZY);
  return NULL;
}

static void what_a_thread_detached_lazily_another_may_take(void) {
  int psid = create_pbox(half);
  unbind_pbox(7, PBOX_LAZY);
  pthread_t thread;
  pthread_create(&thread, NULL, bind_7, &psid);
  pthread_join(thread, NULL);
  CHECK(bind_pbox(7, PBOX_SHARED) == psid);
  CHECK(update_pbox(KEY, PBOX_HOLD) == 0); /* the other one's activity goes on */
  release_pbox(psid);
}

static pthread_barrier_t both;

static void *keep(void *psid) {
  *(int *)psid = create_pbox(half);
  pthread_barrier_wait(&both);
  pthread_barrier_wait(&both);
  return NULL; /* without giving it back */
}

static void a_pbox_belongs_to_one_thread_until_that_ends(void) {
  int psid;
  pthread_t thread;
  pthread_barrier_init(&both, NULL, 2);
  pthread_create(&thread, NULL, keep, &psid);
  pthread_barrier_wait(&both);
  CHECK(activate_pbox(psid) == -EBUSY && release_pbox(psid) == -EBUSY);
  CHECK(update_pbox_of(psid, KEY, PBOX_HOLD) == -EBUSY);
  pthread_barrier_wait(&both);
  pthread_join(thread, NULL);
  while (release_pbox(psid) == -EBUSY) sleep_ms(1); /* the kernel is not quite done with it */
}

static void many_are_filed_and_found_and_removed(void) {
  enum { MANY = 900 };
  static int psids[MANY];
  for (size_t i = 0; i < MANY; i++) {
    psids[i] = create_pbox(half);
    CHECK(unbind_pbox(i * 64, PBOX_EAGER) == psids[i]);
  }
  for (size_t i = 0; i < MANY; i += 2) CHECK(release_pbox(psids[i]) == 0);
  for (size_t i = 0; i < MANY; i++) {
    int found = bind_pbox(i * 64, PBOX_DEDICATED);
    CHECK(found == (i % 2 ? psids[i] : -ENOENT));
    if (found > 0) CHECK(release_pbox(found) == 0);
  }
}

/* All keys have one hash here. */
static void open_with_eight_keys(void) { open_again((struct pbox_options){.max_keys = WAYS}); }

static uint64_t deferred_by(size_t key) {
  uint32_t place = place_of(key);
  return place == NOWHERE ? 0 : pbox_domain->keys[place].deferred_ns;
}

static void keys_that_the_idle_wait_for_give_way_first(void) {
  open_with_eight_keys();
  pbox_domain->keys[place_for(KEY)].deferred_ns = 1;
  for (size_t key = 100; key < 100 + WAYS - 1; key++) {
    struct pbox_page_key *shown = &pbox_domain->keys[place_for(key)];
    shown->deferred_ns = 1000000000;
    shown->not_counted = 1;
  }
  CHECK(place_for(OTHER) != NOWHERE);
  CHECK(deferred_by(KEY) == 1);
}

/* The 17th waiter has no seat, so its key's place may be given away while it waits. */
static void a_wait_is_not_booked_to_the_key_that_took_its_keys_place(void) {
  open_with_eight_keys();
  int psid = begin();
  told(psid, KEY, PBOX_PREPARE);
  struct box *box = box_of(psid);
  leave_seat(box->waits[0].place, box->waits[0].seat, index_of(box));
  box->waits[0].seat = NOWHERE;
  for (size_t key = 100; key < 100 + WAYS; key++) CHECK(place_for(key) != NOWHERE);
  pass_ms(1);
  told(psid, KEY, PBOX_ENTER);
  for (size_t key = 100; key < 100 + WAYS; key++) CHECK(deferred_by(key) == 0);
  release_pbox(psid);
}

static void figures_that_somebody_stopped_writing_are_not_waited_for(void) {
  int psid = begin();
  struct pbox_stats stats;
  slot_of(psid)->seq++; /* as a process that was killed within */
  CHECK(stat_pbox(psid, &stats) == -EAGAIN);
  slot_of(psid)->seq++;
  CHECK(stat_pbox(psid, &stats) == 0);
  release_pbox(psid);
}

static void what_a_pbox_did_stays_in_its_place_when_it_ends(void) {
  struct pbox_page_slot *slot = NULL;
  uint64_t executed_ns = 0, deferred_ns = 0;
  for (uint64_t i = 1; i <= 2; i++) { /* the second one gets the first one's place */
    int psid = begin();
    CHECK(!slot || slot == slot_of(psid));
    slot = slot_of(psid);
    struct pbox_page_ended was = slot->ended;
    update_pbox(KEY, PBOX_PREPARE);
    pass_ms(2);
    update_pbox(KEY, PBOX_ENTER);
    CHECK(slot->ended.pboxes == was.pboxes && slot->ended.deferred_ns == was.deferred_ns);
    CHECK(slot->executed_ns == 0 && slot->penalties == 0); /* its own */
    uint64_t waited_ns = slot->activity_deferred_ns, active_ns = now_ns() - slot->activity_start_ns;
    slot->times_victim = slot->times_noisy = slot->penalties = slot->penalty_ns = i;
    uint32_t seq = slot->seq;
    CHECK(release_pbox(psid) == 0); /* in the middle of its activity */
    CHECK(slot->seq > seq && slot->seq % 2 == 0);
    CHECK(slot->ended.pboxes == was.pboxes + 1 && slot->ended.activities == was.activities + 1);
    CHECK(slot->ended.executed_ns == was.executed_ns + active_ns && waited_ns == 2000000);
    CHECK(slot->ended.deferred_ns == was.deferred_ns + waited_ns);
    CHECK(slot->ended.times_victim == was.times_victim + i);
    CHECK(slot->ended.times_noisy == was.times_noisy + i);
    CHECK(slot->ended.penalties == was.penalties + i);
    CHECK(slot->ended.penalty_ns == was.penalty_ns + i);
    CHECK(slot->executed_ns == 0 && slot->deferred_ns == 0 && slot->times_noisy == 0);
    CHECK(slot->ended.executed_ns > executed_ns && slot->ended.deferred_ns > deferred_ns);
    executed_ns = slot->ended.executed_ns;
    deferred_ns = slot->ended.deferred_ns;
  }
}

int main(void) {
  rules_out_of_range_are_refused();
  deferral_is_the_time_from_prepare_to_enter();
  missing_and_wrong_calls_are_counted_and_change_nothing();
  a_wait_without_enter_ends_with_its_activity_and_is_not_counted();
  more_resources_at_once_than_fit_do_no_harm();
  an_old_psid_is_nobody();
  what_a_pbox_did_stays_in_its_place_when_it_ends();
  a_full_table_refuses_and_says_so();
  a_pbox_is_found_by_what_it_is_filed_under();
  what_a_thread_detached_lazily_another_may_take();
  a_pbox_belongs_to_one_thread_until_that_ends();
  many_are_filed_and_found_and_removed();
  figures_that_somebody_stopped_writing_are_not_waited_for();
  keys_that_the_idle_wait_for_give_way_first();
  a_wait_is_not_booked_to_the_key_that_took_its_keys_place();
  close_pbox();
  return 0;
}
