/* locks.c - mutexes, reader-writer locks and condition variables as virtual resources. */
#include <errno.h>

#include "real.h"
#include "shim.h"

static void mark(const void *key, uint32_t kind) {
  uint32_t place = place_of((uint64_t)(uintptr_t)key);
  if (place != NOWHERE) store(pbox_domain->keys[place].kind, kind);
}

COLD static bool begin_wait(const void *key, uint32_t kind) {
  if (!enter_library()) return false;
  update_pbox((size_t)key, PBOX_PREPARE);
  mark(key, kind);
  leave_library();
  return true;
}

COLD static void end_wait(const void *key) {
  if (!enter_library()) return;
  update_pbox((size_t)key, PBOX_ENTER);
  leave_library();
}

static void tell_hold(const void *key) {
  if (!enter_library()) return;
  update_pbox((size_t)key, PBOX_HOLD);
  leave_library();
}

/* Before it is given back: afterwards, who waited for it may be gone. */
static void tell_waited_for(const void *key) {
  if (real.holds_untold || !enter_library()) return;
  int saved = errno;
  charge_hold(pbox_self.box, (uint64_t)(uintptr_t)key);
  errno = saved;
  leave_library();
}

/* After it was given back: only then may anybody be delayed. */
static void tell_given_back(const void *key) {
  if (!enter_library()) return;
  drop_hold(pbox_self.box, (uint64_t)(uintptr_t)key);
  settle(pbox_self.box, pbox_self.slot);
  leave_library();
}

/* A robust mutex is held as well when its last holder has died with it. */
static bool is_held(int result) { return !result || result == EOWNERDEAD; }

/* Of the ways to take a lock: try, wait if it is taken, say that it is held. */
#define TAKE(lock, kind, try_it, wait_for_it)                     \
  do {                                                            \
    if (!real.found) find_real();                                 \
    int result = try_it;                                          \
    if (result == EBUSY) {                                        \
      bool traced = begin_wait(lock, kind);                       \
      result = wait_for_it;                                       \
      if (traced) end_wait(lock);                                 \
    }                                                             \
    if (!real.holds_untold && is_held(result)) tell_hold(lock);   \
    return result;                                                \
  } while (0)

#define TRY(lock, try_it)                                         \
  do {                                                            \
    if (!real.found) find_real();                                 \
    int result = try_it;                                          \
    if (!real.holds_untold && is_held(result)) tell_hold(lock);   \
    return result;                                                \
  } while (0)

/* One that fails leaves it held, or was none of this thread's. */
#define GIVE_BACK(lock, give_it_back)                             \
  do {                                                            \
    if (!real.found) find_real();                                 \
    tell_waited_for(lock);                                        \
    int result = give_it_back;                                    \
    if (!result) tell_given_back(lock);                           \
    return result;                                                \
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

/* Not a part of the next one, which is a jump where nothing is told. */
NOINLINE static int unlock_mutex(pthread_mutex_t *mutex) {
  GIVE_BACK(mutex, real.mutex_unlock(mutex));
}

EXPORT int pthread_mutex_unlock(pthread_mutex_t *mutex) {
  return real.holds_untold ? real.mutex_unlock(mutex) : unlock_mutex(mutex);
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

NOINLINE static int unlock_rwlock(pthread_rwlock_t *lock) {
  GIVE_BACK(lock, real.rwlock_unlock(lock));
}

EXPORT int pthread_rwlock_unlock(pthread_rwlock_t *lock) {
  return real.holds_untold ? real.rwlock_unlock(lock) : unlock_rwlock(lock);
}

/* A condition's wait: the thread does not hold the mutex meanwhile, and no penalty may be taken at
   either end, where it does. */
static uint64_t begin_condition(pthread_cond_t *condition, pthread_mutex_t *mutex) {
  tell_waited_for(mutex);
  if (!enter_library()) return 0;
  struct thread *self = &pbox_self;
  drop_hold(self->box, (uint64_t)(uintptr_t)mutex);
  if (!shim_conditions_defer && self->box->active) end_activity(self->box, self->slot, now_ns());
  leave_library();
  if (shim_conditions_defer) begin_wait(condition, PBOX_KEY_CONDITION);
  return now_ns();
}

static void show_idleness(const void *condition, uint64_t idle_ns) {
  uint32_t place = place_for((uint64_t)(uintptr_t)condition);
  if (place == NOWHERE) return;
  struct pbox_page_key *shown = &pbox_domain->keys[place];
  store(shown->kind, PBOX_KEY_CONDITION);
  store(shown->not_counted, 1);
  add(shown->deferred_ns, idle_ns);
  add(shown->waits, 1);
}

/* The mutex is the thread's again, in time or not; but one that never was it (EPERM) is not, nor is
   one that nobody can have any more. */
static bool is_held_again(int result) { return result != EPERM && result != ENOTRECOVERABLE; }

static void end_condition(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t since_ns,
                          int result) {
  if (!since_ns) return;
  if (shim_conditions_defer) {
    end_wait(condition);
  } else if (enter_library()) {
    struct thread *self = &pbox_self;
    if (!self->box->active) begin_activity(self->box, self->slot);
    show_idleness(condition, now_ns() - since_ns);
    leave_library();
  }
  if (!real.holds_untold && is_held_again(result)) tell_hold(mutex);
}

#define WAIT(condition, mutex, wait_for_it)                  \
  do {                                                       \
    if (!real.found) find_real();                                 \
    uint64_t since_ns = begin_condition(condition, mutex);   \
    int result = wait_for_it;                                \
    end_condition(condition, mutex, since_ns, result);       \
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
