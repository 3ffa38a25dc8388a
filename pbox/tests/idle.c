/* An unmodified program for the shim: a worker waits for a condition until there is work. */
#include <sched.h>
#include <stdatomic.h>

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

int main(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, wait_for_work, NULL);
  while (!there) sched_yield();
  pthread_mutex_lock(&mutex); /* it has given it back, so it waits */
  say_address(&condition);
  work = 1;
  pthread_cond_signal(&condition);
  pthread_mutex_unlock(&mutex);
  pthread_join(thread, NULL);
  say("over");
  return 0;
}
