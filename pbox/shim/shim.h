/* shim.h - what the shim's files share. */
#ifndef PBOX_SHIM_H
#define PBOX_SHIM_H

#include "internal.h"

#define EXPORT __attribute__((visibility("default")))

#pragma GCC visibility push(hidden)

extern bool shim_conditions_defer; /* who waits for a condition is deferred, not idle */

/* What the shim remembers of a thread. */
struct shim_thread {
  int psid;    /* 0: none yet; < 0: there was no room for one */
  bool inside; /* the library's own calls come by here, too */
};
extern _Thread_local struct shim_thread shim_thread __attribute__((tls_model("initial-exec")));

/* Makes the thread's pBox, with its first call. */
COLD void find_pbox(void);

/* The thread's pBox is pbox_self.box until leave_library(); false without one, and where the
   library itself has called. */
static inline bool enter_library(void) {
  if (shim_thread.inside) return false;
  if (!shim_thread.psid) find_pbox();
  return shim_thread.inside = shim_thread.psid > 0 && pbox_self.box;
}
static inline void leave_library(void) { shim_thread.inside = false; }

/* Around a wait for the world: ends the thread's activity, and begins the next one. */
static inline bool begin_idle(void) {
  if (!enter_library()) return false;
  freeze_own(pbox_self.box, pbox_self.slot);
  leave_library();
  return true;
}

static inline void end_idle(void) { /* errno is the call's, and nothing here changes it */
  if (!enter_library()) return;
  activate_own(pbox_self.box, pbox_self.slot);
  leave_library();
}

#pragma GCC visibility pop
#endif
