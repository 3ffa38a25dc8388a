/* An unmodified program for the shim whose calls fail: it neither gives back nor waits with a mutex
   that is another thread's, and keeps its own when it waits until no time of the clock.  Then it
   gives back one for which another thread waits, and last its own. */
#include <errno.h>
#include <time.h>

#include "steps.h"

static pthread_mutex_t anothers = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_mutex_t own = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_mutex_t contended = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

static void *fail(void *nothing) {
  const struct timespec no_time = {0, 1000000000};
  pthread_t thread;
  if (pthread_mutex_unlock(&anothers) != EPERM) return &anothers;
  if (pthread_cond_wait(&condition, &anothers) != EPERM) return &anothers;
  pthread_mutex_lock(&own);
  if (pthread_mutex_lock(&own) != EDEADLK) return &own;
  if (pthread_cond_timedwait(&condition, &own, &no_time) != EINVAL) return &own;
  pthread_mutex_lock(&contended);
  pthread_create(&thread, NULL, take_and_give_back, &contended);
  say_address(&contended);
  pthread_mutex_unlock(&contended);
  say("has its own");
  pthread_mutex_unlock(&own);
  say("has none");
  pthread_join(thread, NULL);
  return nothing;
}

int main(void) {
  pthread_t thread;
  void *wrong;
  pthread_mutex_lock(&anothers);
  pthread_create(&thread, NULL, fail, NULL);
  pthread_join(thread, &wrong);
  return wrong != NULL;
}
