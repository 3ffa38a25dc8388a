/*
 * directory.c - pBoxes by what the program files them under (bind_pbox, unbind_pbox).
 *
 * Hash tables with linear probing, one of SHARDS for each range of hashes, each with a lock of
 * its own: threads that hand over different connections do not meet.  This is not the path of
 * events, it belongs to one process, and unlike the table of keys it must not lose anything, so
 * it grows.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum { SHARDS = 64, SMALLEST = 16 };

struct entry {
  uint64_t k; /* any number, 0 included: psid 0 is what says free */
  int psid;
};

static struct shard {
  pthread_mutex_t lock;
  struct entry *entries;
  size_t size, used; /* size is a power of two */
} shards[SHARDS];

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_locks(void) {
  for (int i = 0; i < SHARDS; i++) pthread_mutex_init(&shards[i].lock, NULL);
}

static uint64_t hash_of(uint64_t k) {
  k *= 0x9e3779b97f4a7c15ull; /* Fibonacci hashing, as for keys */
  return k ^ (k >> 32);
}

static struct shard *lock_shard(uint64_t k) {
  pthread_once(&once, make_locks);
  struct shard *shard = &shards[hash_of(k) >> 58];
  pthread_mutex_lock(&shard->lock);
  return shard;
}

/* Where k is, or the free entry where it belongs. */
static struct entry *find(const struct shard *shard, uint64_t k) {
  size_t at = hash_of(k) & (shard->size - 1);
  while (shard->entries[at].psid && shard->entries[at].k != k) at = (at + 1) & (shard->size - 1);
  return &shard->entries[at];
}

static int grow(struct shard *shard) {
  struct shard larger = {.size = shard->size ? shard->size * 2 : SMALLEST};
  larger.entries = calloc(larger.size, sizeof *larger.entries);
  if (!larger.entries) return -ENOMEM;
  for (size_t i = 0; i < shard->size; i++)
    if (shard->entries[i].psid) *find(&larger, shard->entries[i].k) = shard->entries[i];
  struct entry *old = shard->entries;
  shard->entries = larger.entries; /* before the old ones go: another thread may fork between */
  shard->size = larger.size;
  free(old);
  return 0;
}

int directory_put(uint64_t k, int psid) {
  struct shard *shard = lock_shard(k);
  int result = 0;
  if (shard->used * 4 >= shard->size * 3) result = grow(shard);
  if (!result) {
    struct entry *entry = find(shard, k);
    if (!entry->psid) shard->used++;
    *entry = (struct entry){k, psid};
  }
  pthread_mutex_unlock(&shard->lock);
  return result;
}

int directory_get(uint64_t k) {
  struct shard *shard = lock_shard(k);
  int psid = shard->size ? find(shard, k)->psid : 0;
  pthread_mutex_unlock(&shard->lock);
  return psid;
}

/* Later entries of the same run move up (Knuth 6.4, Algorithm R), so there are no tombstones. */
void directory_remove(uint64_t k, int psid) {
  struct shard *shard = lock_shard(k);
  struct entry *entry = shard->size ? find(shard, k) : NULL;
  if (entry && entry->psid == psid) {
    size_t mask = shard->size - 1, hole = (size_t)(entry - shard->entries);
    for (size_t at = (hole + 1) & mask; shard->entries[at].psid; at = (at + 1) & mask) {
      size_t home = hash_of(shard->entries[at].k) & mask;
      if (((at - home) & mask) < ((at - hole) & mask)) continue;
      shard->entries[hole] = shard->entries[at];
      hole = at;
    }
    shard->entries[hole] = (struct entry){0, 0};
    shard->used--;
  }
  pthread_mutex_unlock(&shard->lock);
}

/* When no other thread is in the library: at the end of a domain, and in a child of fork(), where
   a lock may be held by a thread that does not exist there. */
void directory_clear(void) {
  pthread_once(&once, make_locks);
  for (int i = 0; i < SHARDS; i++) {
    free(shards[i].entries);
    shards[i].entries = NULL;
    shards[i].size = shards[i].used = 0;
    pthread_mutex_init(&shards[i].lock, NULL);
  }
}
