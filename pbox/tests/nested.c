/* An unmodified program for the shim: one thread has a lock, for which it only tried, and a recursive
   mutex twice, for which another one waits; it gives back one by one.  It says so after each, and
   goes on with the next line of its standard input. */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

static void *wait_for_mutex(void *nothing) {
  pthread_mutex_lock(&mutex);
  pthread_mutex_unlock(&mutex);
  return nothing;
}

static void say(const char *what) {
  puts(what);
  fflush(stdout);
  getchar();
}

int main(void) {
  pthread_t thread;
  const struct timespec length = {0, 100000000};
  if (pthread_rwlock_trywrlock(&lock)) return 1;
  pthread_mutex_lock(&mutex);
  pthread_mutex_lock(&mutex);
  pthread_create(&thread, NULL, wait_for_mutex, NULL);
  nanosleep(&length, NULL);
  pthread_mutex_unlock(&mutex);
  say("inner");
  pthread_mutex_unlock(&mutex);
  say("outer");
  pthread_rwlock_unlock(&lock);
  say("other");
  pthread_join(thread, NULL);
  return 0;
}
