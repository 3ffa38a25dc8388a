/* clock.c - the tests' clock stands still but for pass_ms(), however busy the machine is.
   Linked with --wrap=clock_gettime; processes that are forked share it. */
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>

#include "clock.h"

enum { START_S = 1000 }; /* so that a test may look back */

static uint64_t *passed_ns;

__attribute__((constructor)) static void start_clock(void) {
  passed_ns = mmap(NULL, sizeof *passed_ns, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

void pass_ms(uint64_t ms) { __atomic_add_fetch(passed_ns, ms * 1000000, __ATOMIC_RELAXED); }

int __real_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);

int __wrap_clock_gettime(clockid_t id, struct timespec *t) {
  if (id != CLOCK_MONOTONIC) return __real_clock_gettime(id, t);
  uint64_t ns = __atomic_load_n(passed_ns, __ATOMIC_RELAXED);
  *t = (struct timespec){START_S + (time_t)(ns / 1000000000), (long)(ns % 1000000000)};
  return 0;
}
