/* An unmodified program for the shim: the main thread holds a lock for which another one waits, until
   it is told to give it back.  pbox_contended mutex, writer (a reader waits), readers (a writer
   waits), or condition: then it waits for one, in vain, and gives the mutex back by that first.
   Calls come before the shim's constructor has run. */
#include <string.h>
#include <time.h>

#include "steps.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;

static void come_first(void) {
  const struct timespec moment = {0, 1};
  nanosleep(&moment, NULL);
}

__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = come_first;

static void *read_lock(void *nothing) {
  pthread_rwlock_rdlock(&lock);
  pthread_rwlock_unlock(&lock);
  return nothing;
}

static void *write_lock(void *nothing) {
  pthread_rwlock_wrlock(&lock);
  pthread_rwlock_unlock(&lock);
  return nothing;
}

int main(int argc, char **argv) {
  const char *kind = argc > 1 ? argv[1] : "mutex";
  const struct timespec long_ago = {0, 0};
  pthread_t thread;
  if (!strcmp(kind, "writer") || !strcmp(kind, "readers")) {
    bool writer = *kind == 'w';
    writer ? pthread_rwlock_wrlock(&lock) : pthread_rwlock_rdlock(&lock);
    pthread_create(&thread, NULL, writer ? read_lock : write_lock, NULL);
    say_address(&lock);
    pthread_rwlock_unlock(&lock);
  } else {
    pthread_mutex_lock(&mutex);
    pthread_create(&thread, NULL, take_and_give_back, &mutex);
    say_address(&mutex);
    if (!strcmp(kind, "condition")) {
      pthread_cond_timedwait(&never, &mutex, &long_ago);
      say("waited");
    }
    pthread_mutex_unlock(&mutex);
  }
  say("given back");
  pthread_join(thread, NULL);
  say("over");
  return 0;
}
