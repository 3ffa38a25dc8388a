/* An unmodified program for the shim: one thread holds a mutex for 200 ms, another waits for it; a
   third waits for a condition, and is idle.  It prints the mutex's and the condition's addresses,
   and goes on when its standard input ends.  It calls before the shim's constructor has run. */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int work;

static void come_first(void) {
  const struct timespec moment = {0, 1};
  nanosleep(&moment, NULL);
}

__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = come_first;

static void *wait_for_mutex(void *nothing) {
  pthread_mutex_lock(&mutex);
  pthread_mutex_unlock(&mutex);
  return nothing;
}

static void *wait_for_work(void *nothing) {
  pthread_mutex_lock(&other);
  while (!work) pthread_cond_wait(&condition, &other);
  pthread_mutex_unlock(&other);
  return nothing;
}

int main(void) {
  pthread_t threads[2];
  const struct timespec length = {0, 200000000};
  pthread_mutex_lock(&mutex);
  pthread_create(&threads[0], NULL, wait_for_mutex, NULL);
  pthread_create(&threads[1], NULL, wait_for_work, NULL);
  nanosleep(&length, NULL);
  pthread_mutex_unlock(&mutex);
  pthread_mutex_lock(&other);
  work = 1;
  pthread_cond_signal(&condition);
  pthread_mutex_unlock(&other);
  nanosleep(&length, NULL);
  printf("%llu %llu\n", (unsigned long long)(size_t)&mutex, (unsigned long long)(size_t)&condition);
  fflush(stdout);
  while (getchar() != EOF) {
  }
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  return 0;
}
