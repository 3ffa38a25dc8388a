/* An unmodified program for the shim: one thread waits for a condition, a second one holds the
   condition's mutex on after it has signalled, and a third waits for the mutex behind the first. */
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "steps.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static atomic_bool there;
static int work;

static void *wait_for_work(void *nothing) {
  pthread_mutex_lock(&mutex);
  there = true;
  while (!work) pthread_cond_wait(&condition, &mutex);
  pthread_mutex_unlock(&mutex);
  return nothing;
}

static void *wait_for_mutex(void *the_mutex) {
  struct timespec start, now; /* it works for 50 ms, which is what its wait is measured by */
  clock_gettime(CLOCK_MONOTONIC, &start);
  do clock_gettime(CLOCK_MONOTONIC, &now);
  while ((now.tv_sec - start.tv_sec) * 1000000000 + now.tv_nsec - start.tv_nsec < 50000000);
  return take_and_give_back(the_mutex);
}

int main(void) {
  pthread_t threads[2];
  pthread_create(&threads[0], NULL, wait_for_work, NULL);
  while (!there) sched_yield();
  while (pthread_mutex_trylock(&mutex)) sched_yield(); /* no wait of this thread's is to be seen */
  work = 1;
  pthread_cond_signal(&condition); /* the first one now waits for the mutex, within the C library */
  pthread_create(&threads[1], NULL, wait_for_mutex, &mutex);
  say_address(&mutex);
  pthread_mutex_unlock(&mutex);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  say("over");
  return 0;
}
