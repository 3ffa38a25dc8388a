/* An unmodified program for the shim: one thread has a lock, for which it only tried, and a recursive
   mutex twice, for which another one waits; it gives back one by one. */
#include "steps.h"

static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

int main(void) {
  pthread_t thread;
  if (pthread_rwlock_trywrlock(&lock)) return 1;
  pthread_mutex_lock(&mutex);
  pthread_mutex_lock(&mutex);
  pthread_create(&thread, NULL, take_and_give_back, &mutex);
  say_address(&mutex);
  pthread_mutex_unlock(&mutex);
  say("inner");
  pthread_mutex_unlock(&mutex);
  say("outer");
  pthread_rwlock_unlock(&lock);
  say("other");
  pthread_join(thread, NULL);
  return 0;
}
