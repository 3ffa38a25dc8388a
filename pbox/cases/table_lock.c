/*
 * table_lock.c - case c7: SELECT FOR UPDATE holds a table's lock while others wait.
 *
 * PostgreSQL's model: a process for each client, the lock and the pBoxes in memory that they share.
 * One client's transactions read for update, think about it, and commit; it holds the table's lock
 * in exclusive mode meanwhile.  The others' queries take it in shared mode for a moment.  The lock
 * is first come, first served, as PostgreSQL's heavyweight locks are.
 */
#include <pthread.h>
#include <string.h>

#include "case.h"

#define QUERY_MS 0.2
#define TRANSACTION_MS 20.0

/* First come, first served, by tickets as at a counter: who has the turn gets in as soon as the
   mode allows, and passes the turn on. */
static struct lock {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  unsigned next, turn;
  int readers;
  bool exclusive;
} *table;

static const size_t TABLE = 16384; /* its number: a key that means the same in each process */

static void start(bool contended) {
  (void)contended;
  if (!table) table = shared_memory(sizeof *table);
  memset(table, 0, sizeof *table);
  pthread_mutexattr_t mutex;
  pthread_condattr_t cond;
  pthread_mutexattr_init(&mutex);
  pthread_condattr_init(&cond);
  pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
  pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&table->mutex, &mutex);
  pthread_cond_init(&table->changed, &cond);
}

static void lock_table(bool exclusive) {
  tell((void *)TABLE, PBOX_PREPARE);
  pthread_mutex_lock(&table->mutex);
  unsigned mine = table->next++;
  while (table->turn != mine || table->exclusive || (exclusive && table->readers))
    pthread_cond_wait(&table->changed, &table->mutex);
  table->turn++;
  if (exclusive)
    table->exclusive = true;
  else
    table->readers++;
  pthread_cond_broadcast(&table->changed);
  pthread_mutex_unlock(&table->mutex);
  tell((void *)TABLE, PBOX_ENTER);
  tell((void *)TABLE, PBOX_HOLD);
}

static void unlock_table(bool exclusive) {
  pthread_mutex_lock(&table->mutex);
  if (exclusive)
    table->exclusive = false;
  else
    table->readers--;
  pthread_cond_broadcast(&table->changed);
  pthread_mutex_unlock(&table->mutex);
  tell((void *)TABLE, PBOX_UNHOLD);
}

static void query(struct client *client) {
  (void)client;
  lock_table(false);
  pause_ms(QUERY_MS);
  unlock_table(false);
}

static void select_for_update(struct client *client) {
  (void)client;
  lock_table(true);
  pause_ms(TRANSACTION_MS);
  unlock_table(true);
}

int main(int argc, char **argv) {
  static const struct model model = {
      .id = "c7", .title = "table lock", .resource = "table-level lock",
      .victims = 3, .noisy = 1, .victim_think_ms = 0.5, .noisy_think_ms = 0.5,
      .request = query, .disturb = select_for_update, .start = start, .processes = true,
  };
  return run_case(&model, argc, argv);
}
