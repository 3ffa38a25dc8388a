/*
 * stress.c - everything at once, for the sanitizers: threads that contend, hand pBoxes over, make
 * wrong calls and leave some out, while one reads all figures.  It checks what must hold at the
 * end; that there is no race, no bad access and no undefined arithmetic is the sanitizers' part.
 */
#include <errno.h>
#include <string.h>

#include "check.h"
#include "pbox_page.h"

enum { THREADS = 6, CONNECTIONS = 12, KEYS = 40 };

static int over, psids[CONNECTIONS];

static unsigned draw(uint64_t *random, unsigned below) {
  *random ^= *random << 13;
  *random ^= *random >> 7;
  *random ^= *random << 17;
  return (unsigned)(*random % below);
}

static size_t some_key(uint64_t *random) { return 1 + draw(random, draw(random, 4) ? 3 : KEYS); }

/* One pass through a resource; a tenth of the calls is left out, some are wrong. */
static void pass(uint64_t *random) {
  size_t key = some_key(random);
  for (int event = PBOX_PREPARE; event <= PBOX_UNHOLD; event++) {
    if (draw(random, 10) == 0) continue;
    int told = draw(random, 50) ? event : (int)draw(random, 6);
    update_pbox(draw(random, 100) ? key : 0, (enum pbox_event)told);
    if (draw(random, 20) == 0) sched_yield();
  }
}

static void *own_pbox(void *seed) {
  uint64_t random = (uint64_t)(uintptr_t)seed * 7919;
  while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
    IsolationRule rule = {PBOX_RELATIVE, (enum pbox_metric)draw(&random, 3), 1 + draw(&random, 99)};
    int psid = create_pbox(rule);
    CHECK(psid > 0 || psid == -ENOSPC);
    name_pbox(psid, "somebody with a name that is too long");
    for (unsigned n = draw(&random, 200); n; n--) {
      activate_pbox(psid);
      pass(&random);
      if (draw(&random, 10)) freeze_pbox(psid);
    }
    CHECK(psid < 0 || release_pbox(psid) == 0);
  }
  return NULL;
}

static void *shared_pboxes(void *seed) {
  uint64_t random = (uint64_t)(uintptr_t)seed * 104729;
  while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
    size_t connection = draw(&random, CONNECTIONS);
    int psid = bind_pbox(connection, PBOX_SHARED);
    if (psid < 0) continue; /* another thread has it */
    CHECK(psid == psids[connection] && penalty_pbox(psid) >= 0);
    if (draw(&random, 2)) activate_pbox(psid);
    pass(&random);
    if (draw(&random, 2)) freeze_pbox(psid);
    if (draw(&random, 3)) CHECK(unbind_pbox(connection, draw(&random, 2) ? PBOX_LAZY : PBOX_EAGER) == psid);
  }
  return NULL;
}

static void *look(void *nothing) {
  struct pbox_stats stats;
  while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
    for (int i = 0; i < CONNECTIONS; i++)
      if (stat_pbox(psids[i], &stats) == 0) CHECK(stats.level >= -1 && stats.level <= 1e6);
    name_pbox_key(3, "a resource");
  }
  return nothing;
}

/* A connection that comes and goes, while another thread looks for it: a box is one thread's. */
enum { THE_CONNECTION = 1000 };
static int owners[16];

static void *come_and_go(void *nothing) {
  while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
    int psid = create_pbox(half), *owner = &owners[(psid & 0xffff) - 1];
    CHECK(psid > 0 && __atomic_exchange_n(owner, 1, __ATOMIC_RELAXED) == 0);
    __atomic_store_n(owner, 0, __ATOMIC_RELAXED);
    CHECK(unbind_pbox(THE_CONNECTION, PBOX_EAGER) == psid);
    while (release_pbox(psid) == -EBUSY) sched_yield();
  }
  return nothing;
}

static void *look_for_it(void *nothing) {
  while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
    int psid = bind_pbox(THE_CONNECTION, PBOX_SHARED);
    if (psid < 0) continue;
    int *owner = &owners[(psid & 0xffff) - 1];
    CHECK(__atomic_exchange_n(owner, 1, __ATOMIC_RELAXED) == 0);
    activate_pbox(psid);
    freeze_pbox(psid);
    __atomic_store_n(owner, 0, __ATOMIC_RELAXED);
    CHECK(unbind_pbox(THE_CONNECTION, PBOX_EAGER) == psid);
  }
  return nothing;
}

static void a_box_is_one_threads_however_fast_it_changes_hands(long ms) {
  pthread_t threads[2];
  pthread_create(&threads[0], NULL, come_and_go, NULL);
  pthread_create(&threads[1], NULL, look_for_it, NULL);
  sleep_ms(ms);
  __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  __atomic_store_n(&over, 0, __ATOMIC_RELAXED);
}

/* Penalties and activities of all connections so far. */
static void sum_up(uint64_t *penalties, uint64_t *activities) {
  *penalties = *activities = 0;
  for (int i = 0; i < CONNECTIONS; i++) {
    struct pbox_stats stats = stats_of(psids[i]);
    *penalties += stats.penalties;
    *activities += stats.activities;
  }
}

enum { LONGEST_MS = 60000 };

int main(int argc, char **argv) {
  struct pbox_options options = {.max_pboxes = 16, .max_keys = 8, .penalty_max_ns = 200000};
  CHECK(open_pbox(&options) == 0);
  a_box_is_one_threads_however_fast_it_changes_hands(1000);
  close_pbox();
  CHECK(open_pbox(&options) == 0);
  for (size_t i = 0; i < CONNECTIONS; i++) {
    psids[i] = create_pbox(half);
    CHECK(psids[i] > 0 && unbind_pbox(i, PBOX_EAGER) == psids[i]);
  }
  pthread_t threads[THREADS + 1];
  for (uintptr_t i = 0; i < THREADS; i++)
    pthread_create(&threads[i], NULL, i % 2 ? own_pbox : shared_pboxes, (void *)(i + 1));
  pthread_create(&threads[THREADS], NULL, look, NULL);
  long ms = argc > 1 ? strtol(argv[1], NULL, 10) : 2000;
  sleep_ms(ms);
  uint64_t penalties, activities;
  /* A busy machine may take its time until one deferred another. */
  for (sum_up(&penalties, &activities); penalties == 0 && ms < LONGEST_MS; ms += 100) {
    sleep_ms(100);
    sum_up(&penalties, &activities);
  }
  __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
  for (int i = 0; i <= THREADS; i++) pthread_join(threads[i], NULL);

  sum_up(&penalties, &activities);
  CHECK(activities > 0 && penalties > 0); /* or it has tested nothing */
  close_pbox();
  return 0;
}
