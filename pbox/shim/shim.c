/*
 * shim.c - LD_PRELOAD: the locks of an unmodified program as virtual resources, its threads as
 * pBoxes.
 *
 *   LD_PRELOAD=libpbox_shim.so PBOX_PAGE=/dev/shm/pbox-%p.page memcached
 *
 * WHAT IS TRACED
 *   mutexes and reader-writer locks  A thread first tries.  When that fails, it is deferred until
 *     it has the lock.  A lock that is free costs the try and nothing more: no clock is read.
 *   condition variables  Whether a worker waits for a resource or for work, the call does not
 *     say, and idleness is the usual case: the wait ends the thread's activity, and its time is
 *     shown with the key, marked as not counted.  PBOX_CONDITION=deferral says otherwise.
 *   an activity  is what a thread does between two waits for the world: epoll_wait, poll, select,
 *     accept, recv, nanosleep and their kin.  Their time is neither T_e nor T_d.
 *
 * WHAT IS DONE
 *   Nothing but measuring (departure from the library's default, for nobody has said of this
 *   program where it may be delayed).  With PBOX_MODE=mitigate the shim also tells who holds a
 *   lock, which reads the clock, and threads take penalties after they have given back the last
 *   one.  A noisy one that waits in the C library's own locks, or in its own, is not seen.
 *   An unlock is told in two halves: whom it has kept waiting before it, while they are still
 *   there (a lock that somebody waits for is held for so much longer), and that it is given back,
 *   with the penalty for it, after it has been.
 *
 * LIMITS
 *   Calls that the C library makes internally do not come by here: taking the mutex again at the
 *   end of a condition's wait, sleep and usleep, stdio's locks.  Nor do spin locks, futexes,
 *   semaphores, joins and C11's mtx_lock.  read() is not taken for idleness: most often it is a
 *   file's.  What other libraries do before this one has been started is not traced.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "real.h"
#include "shim.h"

/* 50 % relative, the paper's in its evaluation. */
static const IsolationRule rule = {PBOX_RELATIVE, PBOX_AVERAGE, 50};
static struct pbox_options options = {.mode = PBOX_MEASURE};
bool shim_conditions_defer;
static bool started;
static pthread_key_t at_thread_end;

_Thread_local struct shim_thread shim_thread;

static void end_thread(void *psid) {
  shim_thread.inside = true;
  release_pbox((int)(intptr_t)psid);
  shim_thread.psid = -1;
}

/* A child's only thread has no pBox. */
static void in_child(void) { shim_thread.psid = 0; }

void find_pbox(void) {
  if (!started) return;
  int saved = errno; /* taking a lock leaves it alone */
  shim_thread.inside = true;
  shim_thread.psid = create_pbox(rule);
  if (shim_thread.psid > 0) {
    pthread_setspecific(at_thread_end, (void *)(intptr_t)shim_thread.psid);
    activate_pbox(shim_thread.psid);
  }
  errno = saved;
}

__attribute__((constructor)) static void start(void) {
  find_real();
  const char *mode = getenv("PBOX_MODE"), *condition = getenv("PBOX_CONDITION");
  real.holds_untold = !mode || strcmp(mode, "mitigate");
  shim_conditions_defer = condition && !strcmp(condition, "deferral");
  pbox_default_options = &options;
  pbox_page_flags = PBOX_PAGE_SHIM;
  pthread_key_create(&at_thread_end, end_thread);
  pthread_atfork(NULL, NULL, in_child);
  started = true; /* other libraries' constructors may have made threads and calls before */
  if (enter_library()) leave_library(); /* so that the page is there from the beginning */
}

/* A new thread gets its pBox before it does anything, so that its time counts from there. */
struct beginning {
  void *(*function)(void *);
  void *argument;
};

static void *begin_thread(void *given) {
  struct beginning beginning = *(struct beginning *)given;
  free(given);
  if (enter_library()) leave_library();
  return beginning.function(beginning.argument);
}

EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*function)(void *), void *argument) {
  if (!real.found) find_real();
  struct beginning *beginning = malloc(sizeof *beginning);
  if (!beginning) return EAGAIN;
  *beginning = (struct beginning){function, argument};
  int result = real.create(thread, attributes, begin_thread, beginning);
  if (result) free(beginning);
  return result;
}
