/* shim.h - what the shim's files share. */
#ifndef PBOX_SHIM_H
#define PBOX_SHIM_H

#include <stdbool.h>

#define EXPORT __attribute__((visibility("default")))

extern bool shim_mitigates;        /* holders are told of, and delayed */
extern bool shim_conditions_defer; /* who waits for a condition is deferred, not idle */

/* The thread's pBox, made and activated with its first call; false without one, and where the
   library itself has called.  It is pbox_self.box until leave_library(). */
bool enter_library(void);
void leave_library(void);

/* Around a wait for the world: ends the thread's activity, and begins the next one. */
bool begin_idle(void);
void end_idle(void);

#endif
