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
 *
 * LIMITS
 *   Calls that the C library makes internally do not come by here: taking the mutex again at the
 *   end of a condition's wait, sleep and usleep, stdio's locks.  Nor do spin locks, futexes,
 *   semaphores, joins and C11's mtx_lock.  read() is not taken for idleness: most often it is a
 *   file's.  What other libraries do before this one has been started is not traced.
 *   An unlock is told of after it, for only then may anybody be delayed: who waited may have gone
 *   on by then, and is not seen to have been deferred (in one case of four, about).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "real.h"

#define EXPORT __attribute__((visibility("default")))

/* 50 % relative, the paper's in its evaluation. */
static const IsolationRule rule = {PBOX_RELATIVE, PBOX_AVERAGE, 50};
static struct pbox_options options = {.mode = PBOX_MEASURE};
static bool started, mitigates, conditions_defer;
static pthread_key_t at_thread_end;

static _Thread_local struct {
  int psid;    /* 0: none yet; < 0: there was no room for one */
  bool inside; /* the library's own calls come by here, too */
} mine __attribute__((tls_model("initial-exec")));

static void end_thread(void *psid) {
  mine.inside = true;
  release_pbox((int)(intptr_t)psid);
  mine.psid = -1;
}

/* A child's only thread has no pBox. */
static void in_child(void) { mine.psid = 0; }

/* The thread's pBox, made and activated with its first call; false without one. */
static bool enter_library(void) {
  if (!started || mine.inside || mine.psid < 0) return false;
  mine.inside = true;
  if (!mine.psid) {
    mine.psid = create_pbox(rule);
    if (mine.psid > 0) {
      pthread_setspecific(at_thread_end, (void *)(intptr_t)mine.psid);
      activate_pbox(mine.psid);
    }
  }
  if (mine.psid < 0) mine.inside = false;
  return mine.psid > 0;
}

static void leave_library(void) { mine.inside = false; }

__attribute__((constructor)) static void start(void) {
  find_real();
  const char *mode = getenv("PBOX_MODE"), *condition = getenv("PBOX_CONDITION");
  mitigates = mode && !strcmp(mode, "mitigate");
  conditions_defer = condition && !strcmp(condition, "deferral");
  pbox_default_options = &options;
  pbox_page_flags = PBOX_PAGE_SHIM;
  pthread_key_create(&at_thread_end, end_thread);
  pthread_atfork(NULL, NULL, in_child);
  started = true; /* other libraries' constructors may have made threads and calls before */
  if (enter_library()) leave_library(); /* so that the page is there from the beginning */
}

static void mark(const void *key, uint32_t kind) {
  uint32_t place = place_of((uint64_t)(uintptr_t)key);
  if (place != NOWHERE) store(pbox_domain->keys[place].kind, kind);
}

static bool begin_wait(const void *key, uint32_t kind) {
  if (!enter_library()) return false;
  update_pbox((size_t)key, PBOX_PREPARE);
  mark(key, kind);
  leave_library();
  return true;
}

static void end_wait(const void *key) {
  if (!enter_library()) return;
  update_pbox((size_t)key, PBOX_ENTER);
  leave_library();
}

static void tell_held(const void *key, enum pbox_event event) {
  if (!mitigates || !enter_library()) return;
  int saved = errno;
  update_pbox((size_t)key, event);
  errno = saved;
  leave_library();
}

/* A robust mutex is held as well when its last holder has died with it. */
static bool is_held(int result) { return !result || result == EOWNERDEAD; }

/* Of the ways to take a lock: try, wait if it is taken, say that it is held. */
#define TAKE(lock, kind, try_it, wait_for_it)              \
  do {                                                     \
    if (!real.nanosleep) find_real();                      \
    int result = try_it;                                   \
    if (result == EBUSY) {                                 \
      bool traced = begin_wait(lock, kind);                \
      result = wait_for_it;                                \
      if (traced) end_wait(lock);                          \
    }                                                      \
    if (mitigates && is_held(result)) tell_held(lock, PBOX_HOLD); \
    return result;                                         \
  } while (0)

#define TRY(lock, try_it)                                  \
  do {                                                     \
    if (!real.nanosleep) find_real();                      \
    int result = try_it;                                   \
    if (mitigates && is_held(result)) tell_held(lock, PBOX_HOLD); \
    return result;                                         \
  } while (0)

EXPORT int pthread_mutex_lock(pthread_mutex_t *mutex) {
  TAKE(mutex, PBOX_KEY_MUTEX, real.mutex_trylock(mutex), real.mutex_lock(mutex));
}

EXPORT int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *until) {
  TAKE(mutex, PBOX_KEY_MUTEX, real.mutex_trylock(mutex), real.mutex_timedlock(mutex, until));
}

EXPORT int pthread_mutex_clocklock(pthread_mutex_t *mutex, clockid_t clock,
                                   const struct timespec *until) {
  TAKE(mutex, PBOX_KEY_MUTEX, real.mutex_trylock(mutex),
       real.mutex_clocklock(mutex, clock, until));
}

EXPORT int pthread_mutex_trylock(pthread_mutex_t *mutex) {
  TRY(mutex, real.mutex_trylock(mutex));
}

EXPORT int pthread_mutex_unlock(pthread_mutex_t *mutex) {
  if (!real.nanosleep) find_real();
  int result = real.mutex_unlock(mutex);
  if (mitigates && !result) tell_held(mutex, PBOX_UNHOLD); /* only now: it may take a penalty */
  return result;
}

EXPORT int pthread_rwlock_rdlock(pthread_rwlock_t *lock) {
  TAKE(lock, PBOX_KEY_RWLOCK, real.rwlock_tryrdlock(lock), real.rwlock_rdlock(lock));
}

EXPORT int pthread_rwlock_wrlock(pthread_rwlock_t *lock) {
  TAKE(lock, PBOX_KEY_RWLOCK, real.rwlock_trywrlock(lock), real.rwlock_wrlock(lock));
}

EXPORT int pthread_rwlock_timedrdlock(pthread_rwlock_t *lock, const struct timespec *until) {
  TAKE(lock, PBOX_KEY_RWLOCK, real.rwlock_tryrdlock(lock), real.rwlock_timedrdlock(lock, until));
}

EXPORT int pthread_rwlock_timedwrlock(pthread_rwlock_t *lock, const struct timespec *until) {
  TAKE(lock, PBOX_KEY_RWLOCK, real.rwlock_trywrlock(lock), real.rwlock_timedwrlock(lock, until));
}

EXPORT int pthread_rwlock_clockrdlock(pthread_rwlock_t *lock, clockid_t clock,
                                      const struct timespec *until) {
  TAKE(lock, PBOX_KEY_RWLOCK, real.rwlock_tryrdlock(lock),
       real.rwlock_clockrdlock(lock, clock, until));
}

EXPORT int pthread_rwlock_clockwrlock(pthread_rwlock_t *lock, clockid_t clock,
                                      const struct timespec *until) {
  TAKE(lock, PBOX_KEY_RWLOCK, real.rwlock_trywrlock(lock),
       real.rwlock_clockwrlock(lock, clock, until));
}

EXPORT int pthread_rwlock_tryrdlock(pthread_rwlock_t *lock) {
  TRY(lock, real.rwlock_tryrdlock(lock));
}

EXPORT int pthread_rwlock_trywrlock(pthread_rwlock_t *lock) {
  TRY(lock, real.rwlock_trywrlock(lock));
}

EXPORT int pthread_rwlock_unlock(pthread_rwlock_t *lock) {
  if (!real.nanosleep) find_real();
  int result = real.rwlock_unlock(lock);
  if (mitigates && !result) tell_held(lock, PBOX_UNHOLD);
  return result;
}

/* A condition's wait: the thread does not hold the mutex meanwhile, and no penalty may be taken at
   either end, where it does. */
static uint64_t begin_condition(pthread_cond_t *condition, pthread_mutex_t *mutex) {
  if (!enter_library()) return 0;
  struct thread *self = &pbox_self;
  if (self->box) drop_hold(self->box, (uint64_t)(uintptr_t)mutex);
  if (!conditions_defer && self->box && self->box->active)
    end_activity(self->box, self->slot, now_ns());
  leave_library();
  if (conditions_defer) begin_wait(condition, PBOX_KEY_CONDITION);
  return now_ns();
}

static void end_condition(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t since_ns) {
  if (!since_ns) return;
  if (conditions_defer) {
    end_wait(condition);
    tell_held(mutex, PBOX_HOLD);
    return;
  }
  if (!enter_library()) return;
  struct thread *self = &pbox_self;
  if (self->box && !self->box->active) begin_activity(self->box, self->slot);
  uint32_t place = place_for((uint64_t)(uintptr_t)condition);
  if (place != NOWHERE) {
    struct pbox_page_key *shown = &pbox_domain->keys[place];
    store(shown->kind, PBOX_KEY_CONDITION);
    store(shown->not_counted, 1);
    add(shown->deferred_ns, now_ns() - since_ns);
    add(shown->waits, 1);
  }
  leave_library();
  tell_held(mutex, PBOX_HOLD);
}

#define WAIT(condition, mutex, wait_for_it)                  \
  do {                                                       \
    if (!real.nanosleep) find_real();                        \
    uint64_t since_ns = begin_condition(condition, mutex);   \
    int result = wait_for_it;                                \
    end_condition(condition, mutex, since_ns);               \
    return result;                                           \
  } while (0)

EXPORT int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex) {
  WAIT(condition, mutex, real.cond_wait(condition, mutex));
}

EXPORT int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                  const struct timespec *until) {
  WAIT(condition, mutex, real.cond_timedwait(condition, mutex, until));
}

EXPORT int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                  clockid_t clock, const struct timespec *until) {
  WAIT(condition, mutex, real.cond_clockwait(condition, mutex, clock, until));
}

static bool begin_idle(void) {
  if (!enter_library()) return false;
  freeze_pbox(mine.psid);
  leave_library();
  return true;
}

static void end_idle(void) {
  int saved = errno;
  if (enter_library()) {
    activate_pbox(mine.psid);
    leave_library();
  }
  errno = saved;
}

#define IDLE(type, call, may_wait)          \
  do {                                      \
    if (!real.nanosleep) find_real();       \
    bool traced = (may_wait) && begin_idle(); \
    type result = call;                     \
    if (traced) end_idle();                 \
    return result;                          \
  } while (0)

EXPORT int epoll_wait(int fd, struct epoll_event *events, int most, int timeout_ms) {
  IDLE(int, real.epoll_wait(fd, events, most, timeout_ms), timeout_ms != 0);
}

EXPORT int epoll_pwait(int fd, struct epoll_event *events, int most, int timeout_ms,
                       const sigset_t *mask) {
  IDLE(int, real.epoll_pwait(fd, events, most, timeout_ms, mask), timeout_ms != 0);
}

static bool is_some_time(const struct timespec *timeout) {
  return !timeout || timeout->tv_sec || timeout->tv_nsec;
}

EXPORT int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
                 const sigset_t *mask) {
  IDLE(int, real.ppoll(fds, n, timeout, mask), is_some_time(timeout));
}

EXPORT int pselect(int n, fd_set *reads, fd_set *writes, fd_set *errors,
                   const struct timespec *timeout, const sigset_t *mask) {
  IDLE(int, real.pselect(n, reads, writes, errors, timeout, mask), is_some_time(timeout));
}

EXPORT int poll(struct pollfd *fds, nfds_t n, int timeout_ms) {
  IDLE(int, real.poll(fds, n, timeout_ms), timeout_ms != 0);
}

EXPORT int select(int n, fd_set *reads, fd_set *writes, fd_set *errors, struct timeval *timeout) {
  IDLE(int, real.select(n, reads, writes, errors, timeout),
       !timeout || timeout->tv_sec || timeout->tv_usec);
}

EXPORT int accept(int fd, struct sockaddr *address, socklen_t *length) {
  IDLE(int, real.accept(fd, address, length), true);
}

EXPORT int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags) {
  IDLE(int, real.accept4(fd, address, length, flags), true);
}

EXPORT ssize_t recv(int fd, void *buffer, size_t bytes, int flags) {
  IDLE(ssize_t, real.recv(fd, buffer, bytes, flags), !(flags & MSG_DONTWAIT));
}

EXPORT ssize_t recvfrom(int fd, void *buffer, size_t bytes, int flags, struct sockaddr *from,
                        socklen_t *length) {
  IDLE(ssize_t, real.recvfrom(fd, buffer, bytes, flags, from, length), !(flags & MSG_DONTWAIT));
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
  IDLE(ssize_t, real.recvmsg(fd, message, flags), !(flags & MSG_DONTWAIT));
}

EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *length,
                           struct timespec *left) {
  IDLE(int, real.clock_nanosleep(clock, flags, length, left), true);
}

EXPORT int nanosleep(const struct timespec *length, struct timespec *left) {
  IDLE(int, real.nanosleep(length, left), true);
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
  if (!real.nanosleep) find_real();
  struct beginning *beginning = malloc(sizeof *beginning);
  if (!beginning) return EAGAIN;
  *beginning = (struct beginning){function, argument};
  int result = real.create(thread, attributes, begin_thread, beginning);
  if (result) free(beginning);
  return result;
}
