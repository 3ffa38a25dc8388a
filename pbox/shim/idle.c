/* idle.c - the calls in which a thread waits for the world: between two of them is an activity. */
#include "real.h"
#include "shim.h"

#define IDLE(type, call, may_wait)            \
  do {                                        \
    if (!real.found) find_real();             \
    bool traced = (may_wait) && begin_idle(); \
    type result = call;                       \
    if (traced) end_idle();                   \
    return result;                            \
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
