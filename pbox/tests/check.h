/* check.h - a check that names its place, and what the tests share. */
#ifndef CHECK_H
#define CHECK_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "pbox.h"

#define CHECK(condition)                                                             \
  do {                                                                               \
    if (!(condition)) {                                                              \
      fprintf(stderr, "%s:%d: in %s: %s\n", __FILE__, __LINE__, __func__, #condition); \
      exit(1);                                                                       \
    }                                                                                \
  } while (0)

static const IsolationRule half = {PBOX_RELATIVE, PBOX_AVERAGE, 50};

static inline void sleep_ms(long ms) {
  struct timespec t = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&t, NULL);
}

static inline struct pbox_stats stats_of(int psid) {
  struct pbox_stats stats;
  CHECK(stat_pbox(psid, &stats) == 0);
  return stats;
}

#endif
