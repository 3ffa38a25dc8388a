/* An unmodified program for the shim: one thread waits on a condition, a second one holds the
   condition's mutex for 200 ms after it has signalled, and a third waits for the mutex behind the
   first.  It prints the mutex's address, and goes on when its standard input ends. */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int work;

static void pause_ms(long ms) {
  const struct timespec length = {0, ms * 1000000};
  nanosleep(&length, NULL);
}

static void *wait_for_work(void *nothing) {
  pthread_mutex_lock(&mutex);
  while (!work) pthread_cond_wait(&condition, &mutex);
  pthread_mutex_unlock(&mutex);
  return nothing;
}

static void *wait_for_mutex(void *nothing) {
  struct timespec start, now; /* it works for 5 ms, which is what its wait is measured by */
  clock_gettime(CLOCK_MONOTONIC, &start);
  do clock_gettime(CLOCK_MONOTONIC, &now);
  while ((now.tv_sec - start.tv_sec) * 1000000000 + now.tv_nsec - start.tv_nsec < 5000000);
  pthread_mutex_lock(&mutex);
  pthread_mutex_unlock(&mutex);
  return nothing;
}

int main(void) {
  pthread_t threads[2];
  pthread_create(&threads[0], NULL, wait_for_work, NULL);
  pause_ms(100);
  pthread_mutex_lock(&mutex);
  work = 1;
  pthread_cond_signal(&condition);
  pause_ms(100); /* the first one now waits for the mutex, within the C library */
  pthread_create(&threads[1], NULL, wait_for_mutex, NULL);
  pause_ms(100);
  pthread_mutex_unlock(&mutex);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  printf("%llu\n", (unsigned long long)(size_t)&mutex);
  fflush(stdout);
  while (getchar() != EOF) {
  }
  return 0;
}
