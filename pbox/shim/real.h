/* real.h - the functions that the shim stands before, as the C library has them.
 *
 * What a server calls most is in the first cache line: such a call goes on to the C library after
 * two looks into it. */
#ifndef PBOX_SHIM_REAL_H
#define PBOX_SHIM_REAL_H

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>

#include "internal.h"

#pragma GCC visibility push(hidden)

struct real {
  _Alignas(64) bool found; /* all of them */
  bool holds_untold;       /* nobody is told who holds a lock: the shim only measures */
  int (*mutex_trylock)(pthread_mutex_t *);
  int (*mutex_timedlock)(pthread_mutex_t *, const struct timespec *);
  int (*mutex_clocklock)(pthread_mutex_t *, clockid_t, const struct timespec *);
  int (*mutex_unlock)(pthread_mutex_t *);
  int (*epoll_wait)(int, struct epoll_event *, int, int);
  int (*mutex_lock)(pthread_mutex_t *);
  int (*rwlock_rdlock)(pthread_rwlock_t *);
  int (*rwlock_wrlock)(pthread_rwlock_t *);
  int (*rwlock_tryrdlock)(pthread_rwlock_t *);
  int (*rwlock_trywrlock)(pthread_rwlock_t *);
  int (*rwlock_timedrdlock)(pthread_rwlock_t *, const struct timespec *);
  int (*rwlock_timedwrlock)(pthread_rwlock_t *, const struct timespec *);
  int (*rwlock_clockrdlock)(pthread_rwlock_t *, clockid_t, const struct timespec *);
  int (*rwlock_clockwrlock)(pthread_rwlock_t *, clockid_t, const struct timespec *);
  int (*rwlock_unlock)(pthread_rwlock_t *);
  int (*cond_wait)(pthread_cond_t *, pthread_mutex_t *);
  int (*cond_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
  int (*cond_clockwait)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
  int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  int (*epoll_pwait)(int, struct epoll_event *, int, int, const sigset_t *);
  int (*poll)(struct pollfd *, nfds_t, int);
  int (*ppoll)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);
  int (*select)(int, fd_set *, fd_set *, fd_set *, struct timeval *);
  int (*pselect)(int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *);
  int (*accept)(int, struct sockaddr *, socklen_t *);
  int (*accept4)(int, struct sockaddr *, socklen_t *, int);
  ssize_t (*recv)(int, void *, size_t, int);
  ssize_t (*recvfrom)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
  ssize_t (*recvmsg)(int, struct msghdr *, int);
  int (*clock_nanosleep)(clockid_t, int, const struct timespec *, struct timespec *);
  int (*nanosleep)(const struct timespec *, struct timespec *);
};
extern struct real real;

/* Looks them up; safe to call again.  A lock may be taken before any constructor has run. */
COLD void find_real(void);

#pragma GCC visibility pop
#endif
