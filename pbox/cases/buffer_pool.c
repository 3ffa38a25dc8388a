/*
 * buffer_pool.c - section 2.1 case 2: a backup takes the blocks of the buffer pool.
 *
 * Four clients read rows of a small table, which fits into the pool (200 MB of 512 MB).  A backup
 * scans a table that does not fit (4 GB).  Each page that it brings in takes the block of the
 * page that was not used for the longest time, often one of the small table, and the clients read
 * it from the device again.  No lock is held for long; what is contended are the blocks.
 *
 * The sizes are those of the paper by 1 : 1 MB, blocks of 1 MB: 512 in the pool, 200 in the small
 * table, 4096 in the large one.
 *
 * Events: a pBox is deferred by the pool from the moment that its page is found missing until it
 * is there again, and holds a block while it reads into it and uses it (Figure 4's
 * buf_LRU_get_free_block and its caller).
 */
#include <pthread.h>
#include <string.h>

#include "case.h"

enum { BLOCKS = 512, SMALL = 200, LARGE = 4096, READS = 2 };
#define READ_MS 1.0  /* a page from the device, at random */
#define SCAN_MS 0.05 /* the next page of a scan, read ahead */
#define ROW_MS 0.2   /* the rest of a request */

static struct {
  pthread_mutex_t mutex;
  int page[BLOCKS];        /* in each block; -1 none */
  uint64_t used[BLOCKS];   /* when it was last used: LRU order */
  bool busy[BLOCKS];       /* being read or used */
  int block[SMALL + LARGE]; /* of each page; -1 none */
  uint64_t uses;
  int scanned; /* how far the backup is */
} pool;

static void start(bool contended) {
  (void)contended;
  memset(&pool, 0, sizeof pool);
  pthread_mutex_init(&pool.mutex, NULL);
  for (int i = 0; i < BLOCKS; i++) pool.page[i] = -1;
  for (int i = 0; i < SMALL + LARGE; i++) pool.block[i] = -1;
  for (int i = 0; i < SMALL; i++) { /* warm: the clients were there first */
    pool.page[i] = i;
    pool.block[i] = i;
    pool.used[i] = ++pool.uses;
  }
}

/* A block for the page: a free one, or the least recently used.  The pool's mutex is held. */
static int take_block(int page) {
  int oldest = -1;
  for (int i = 0; i < BLOCKS; i++)
    if (!pool.busy[i] && (oldest < 0 || pool.used[i] < pool.used[oldest])) oldest = i;
  if (pool.page[oldest] >= 0) pool.block[pool.page[oldest]] = -1;
  pool.page[oldest] = page;
  pool.block[page] = oldest;
  pool.busy[oldest] = true;
  pool.used[oldest] = ++pool.uses;
  return oldest;
}

static void done_with(int block) {
  pthread_mutex_lock(&pool.mutex);
  pool.busy[block] = false;
  pthread_mutex_unlock(&pool.mutex);
}

static void read_page(int page, double device_ms) {
  pthread_mutex_lock(&pool.mutex);
  int block = pool.block[page];
  if (block >= 0) {
    pool.used[block] = ++pool.uses;
    pthread_mutex_unlock(&pool.mutex);
    return;
  }
  tell(&pool, PBOX_PREPARE);
  block = take_block(page);
  pthread_mutex_unlock(&pool.mutex);
  pause_ms(device_ms);
  tell(&pool, PBOX_ENTER);
  tell(&pool, PBOX_HOLD);
  done_with(block);
  tell(&pool, PBOX_UNHOLD);
}

static void select_rows(struct client *client) {
  for (int i = 0; i < READS; i++) read_page((int)draw(&client->random, SMALL), READ_MS);
  pause_ms(ROW_MS);
}

/* The next page of the backup: it holds the block from taking it until the page is written out. */
static void dump(struct client *client) {
  (void)client;
  int page = SMALL + pool.scanned;
  pool.scanned = (pool.scanned + 1) % LARGE;
  pthread_mutex_lock(&pool.mutex);
  int block = take_block(page);
  pthread_mutex_unlock(&pool.mutex);
  tell(&pool, PBOX_HOLD);
  pause_ms(SCAN_MS);
  done_with(block);
  tell(&pool, PBOX_UNHOLD);
}

int main(int argc, char **argv) {
  static const struct model model = {
      .id = "2.1", .title = "buffer pool", .resource = "free blocks",
      .victims = 4, .noisy = 1, .victim_think_ms = 0.2,
      .request = select_rows, .disturb = dump, .start = start,
  };
  return run_case(&model, argc, argv);
}
