/*
 * tickets.c - case c3, section 2.1 case 3: slow queries use up the tickets.
 *
 * The storage engine admits four threads at once (innodb_thread_concurrency).  Whoever finds it
 * full sleeps and looks again (Figure 9).  Clients with short queries are four, so they never
 * wait for each other; then come clients with slow queries on other tables.
 */
#include "case.h"

enum { CONCURRENCY = 4 };
#define SHORT_MS 0.3
#define SLOW_MS 15.0
#define LOOK_AGAIN_MS 0.2

static int n_active;

static void start(bool contended) {
  (void)contended;
  n_active = 0;
}

static void enter_engine(void) {
  tell(&n_active, PBOX_PREPARE);
  for (;;) {
    if (__atomic_load_n(&n_active, __ATOMIC_ACQUIRE) < CONCURRENCY) {
      if (__atomic_add_fetch(&n_active, 1, __ATOMIC_ACQ_REL) <= CONCURRENCY) break;
      __atomic_sub_fetch(&n_active, 1, __ATOMIC_ACQ_REL);
    }
    pause_ms(LOOK_AGAIN_MS);
  }
  tell(&n_active, PBOX_ENTER);
  tell(&n_active, PBOX_HOLD);
}

static void leave_engine(void) {
  __atomic_sub_fetch(&n_active, 1, __ATOMIC_ACQ_REL);
  tell(&n_active, PBOX_UNHOLD);
}

static void short_query(struct client *client) {
  (void)client;
  enter_engine();
  pause_ms(SHORT_MS);
  leave_engine();
}

static void slow_query(struct client *client) {
  (void)client;
  enter_engine();
  pause_ms(SLOW_MS);
  leave_engine();
}

int main(int argc, char **argv) {
  static const struct model model = {
      .id = "c3", .title = "tickets", .resource = "n_active",
      .victims = 4, .noisy = 4, .victim_think_ms = 1.0, .noisy_think_ms = 1.0,
      .request = short_query, .disturb = slow_query, .start = start,
  };
  return run_case(&model, argc, argv);
}
