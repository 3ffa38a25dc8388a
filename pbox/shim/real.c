#include "real.h"

#include <dlfcn.h>

struct real real;

/* Of conditions there are two kinds in the C library: those of LinuxThreads (GLIBC_2.2.5 on
   x86-64), which a lookup without a version may give, and those that every program built in this
   century uses.  What an older C library does not have, no program on it calls. */
static void *lookup(const char *name, const char *version) {
  void *found = version ? dlvsym(RTLD_NEXT, name, version) : NULL;
  return found ? found : dlsym(RTLD_NEXT, name);
}

#define FIND(field, name, version) *(void **)&real.field = lookup(name, version)

void find_real(void) {
  if (real.found) return;
  FIND(mutex_lock, "pthread_mutex_lock", NULL);
  FIND(mutex_unlock, "pthread_mutex_unlock", NULL);
  FIND(mutex_trylock, "pthread_mutex_trylock", NULL);
  FIND(mutex_timedlock, "pthread_mutex_timedlock", NULL);
  FIND(mutex_clocklock, "pthread_mutex_clocklock", NULL);
  FIND(rwlock_rdlock, "pthread_rwlock_rdlock", NULL);
  FIND(rwlock_wrlock, "pthread_rwlock_wrlock", NULL);
  FIND(rwlock_tryrdlock, "pthread_rwlock_tryrdlock", NULL);
  FIND(rwlock_trywrlock, "pthread_rwlock_trywrlock", NULL);
  FIND(rwlock_timedrdlock, "pthread_rwlock_timedrdlock", NULL);
  FIND(rwlock_timedwrlock, "pthread_rwlock_timedwrlock", NULL);
  FIND(rwlock_clockrdlock, "pthread_rwlock_clockrdlock", NULL);
  FIND(rwlock_clockwrlock, "pthread_rwlock_clockwrlock", NULL);
  FIND(rwlock_unlock, "pthread_rwlock_unlock", NULL);
  FIND(cond_wait, "pthread_cond_wait", "GLIBC_2.3.2");
  FIND(cond_timedwait, "pthread_cond_timedwait", "GLIBC_2.3.2");
  FIND(cond_clockwait, "pthread_cond_clockwait", NULL);
  FIND(create, "pthread_create", NULL);
  FIND(epoll_wait, "epoll_wait", NULL);
  FIND(epoll_pwait, "epoll_pwait", NULL);
  FIND(poll, "poll", NULL);
  FIND(ppoll, "ppoll", NULL);
  FIND(select, "select", NULL);
  FIND(pselect, "pselect", NULL);
  FIND(accept, "accept", NULL);
  FIND(accept4, "accept4", NULL);
  FIND(recv, "recv", NULL);
  FIND(recvfrom, "recvfrom", NULL);
  FIND(recvmsg, "recvmsg", NULL);
  FIND(clock_nanosleep, "clock_nanosleep", NULL);
  FIND(nanosleep, "nanosleep", NULL);
  real.found = true;
}
