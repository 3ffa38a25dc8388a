/*
 * undo_purge.c - case c5, section 2.1 case 1: purging a long UNDO log blocks writers.
 *
 * A multi-version store keeps the old version of each row that is written in an UNDO log, until no
 * transaction can read it any more.  Without long transactions the purge thread follows in steps
 * of a few records.  A client that reads in a transaction and commits it much later keeps them all
 * from being purged; when it commits, the purge thread goes through thousands, in batches as
 * InnoDB's (300), holding the log's latch for each.  Writers need the latch for each record.
 *
 * Noisy: the purge thread, from the moment that the long transaction commits; a block of the case
 * begins there.  Without the long transaction, a record is purged while its page is still in
 * memory, in no time.  Old ones need the device.  Victims: the writers.  The latch is a plain
 * mutex, so that who asks for it at the right moment overtakes those who sleep on it.
 */
#include <pthread.h>

#include "case.h"

#define WRITE_MS 0.30  /* the row itself: a device */
#define RECORD_MS 0.04 /* to remove an old record */
#define FETCH_MS 0.5   /* between batches: which records are next */
enum {
  BATCH = 300,
  BACKLOG = 60000, /* records of 8 s at what the writers do when nobody is in their way */
};

static struct {
  pthread_mutex_t latch;
  long records;
} undo;

static void start(bool contended) {
  pthread_mutex_init(&undo.latch, NULL);
  undo.records = contended ? BACKLOG : 0;
}

static void latch(void) {
  tell(&undo, PBOX_PREPARE);
  pthread_mutex_lock(&undo.latch);
  tell(&undo, PBOX_ENTER);
  tell(&undo, PBOX_HOLD);
}

static void unlatch(void) {
  pthread_mutex_unlock(&undo.latch);
  tell(&undo, PBOX_UNHOLD);
}

static void write_row(struct client *client) {
  (void)client;
  pause_ms(WRITE_MS);
  latch();
  undo.records++;
  unlatch();
}

/* One batch of the purge thread. */
static void purge(struct client *client) {
  (void)client;
  latch();
  long batch = undo.records < BATCH ? undo.records : BATCH;
  pause_ms((double)batch * RECORD_MS);
  undo.records -= batch;
  unlatch();
}

int main(int argc, char **argv) {
  static const struct model model = {
      .id = "c5", .title = "UNDO log purge", .resource = "UNDO log",
      .victims = 4, .noisy = 1, .victim_think_ms = 0.2, .noisy_think_ms = FETCH_MS,
      .request = write_row, .disturb = purge, .start = start,
  };
  return run_case(&model, argc, argv);
}
