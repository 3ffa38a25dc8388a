/* clock.h - a clock that a test moves. */
#ifndef CLOCK_H
#define CLOCK_H

#include <stdint.h>

/* The monotonic clock goes on by MS at once, for all threads and forked processes. */
void pass_ms(uint64_t ms);

#endif
