/* steps.h - an unmodified program that a test leads by the hand: it says what it has done, and goes
   on with the next line of its standard input.  So nothing depends on how long anything takes. */
#ifndef STEPS_H
#define STEPS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

static inline void say(const char *what) {
  puts(what);
  fflush(stdout);
  getchar();
}

static inline void say_address(const void *of) {
  printf("%llu\n", (unsigned long long)(size_t)of);
  fflush(stdout);
  getchar();
}

static inline void *take_and_give_back(void *mutex) {
  pthread_mutex_lock(mutex);
  pthread_mutex_unlock(mutex);
  return NULL;
}

#endif
