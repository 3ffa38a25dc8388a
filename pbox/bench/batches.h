/*
 * batches.h - the median time of a short call: batches long enough for the clock, many of them,
 * for other programs only ever add time, now and then and a lot.
 */
#ifndef BATCHES_H
#define BATCHES_H

#include <stdlib.h>
#include <time.h>

enum { BATCHES = 401, CALLS = 1000 };

static inline double clock_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static inline int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Nanoseconds of one call of `body`, the loop's own share included. */
static inline double median_ns(void (*body)(void)) {
  double per_call[BATCHES];
  for (int batch = 0; batch < BATCHES; batch++) {
    double start = clock_ns();
    for (int i = 0; i < CALLS; i++) body();
    per_call[batch] = (clock_ns() - start) / CALLS;
  }
  qsort(per_call, BATCHES, sizeof per_call[0], by_size);
  return per_call[BATCHES / 2];
}

#endif
