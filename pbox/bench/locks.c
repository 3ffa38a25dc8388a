/*
 * locks.c - what an uncontended lock and unlock take, run with and without the shim before it.
 * It knows nothing of pBoxes.  One JSON object: medians over batches, and the file that the calls
 * lead to, for a library that cannot be preloaded is passed over without a failure.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "batches.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

static void mutex_pair(void) {
  pthread_mutex_lock(&mutex);
  pthread_mutex_unlock(&mutex);
}

static void read_pair(void) {
  pthread_rwlock_rdlock(&lock);
  pthread_rwlock_unlock(&lock);
}

int main(void) {
  Dl_info found;
  if (!dladdr(dlsym(RTLD_DEFAULT, "pthread_mutex_lock"), &found)) return 1;
  printf("{\"calls_lead_to\": \"%s\", \"mutex_ns\": %.1f, \"rwlock_ns\": %.1f}\n",
         found.dli_fname, median_ns(mutex_pair), median_ns(read_pair));
  return 0;
}
