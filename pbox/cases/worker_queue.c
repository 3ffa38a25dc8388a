/*
 * worker_queue.c - case c11: slow requests in a worker queue block fast ones.
 *
 * mod_fcgid's model: connections put requests into one queue, four workers take them out.  Fast
 * requests never wait long until a few connections send slow ones, which occupy all workers.
 *
 * The workers are shared between connections, so none may sleep for a penalty.  A worker that
 * takes a request asks penalty_pbox() for its connection; if it is not to run yet, the worker puts
 * the request back and takes the next (section 5, event-driven model).
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "case.h"

enum { WORKERS = 4, MOST_WAITING = 16 };
#define FAST_MS 0.3
#define SLOW_MS 20.0

struct request {
  struct client *client;
  bool done;
};

static struct {
  pthread_mutex_t mutex;
  pthread_cond_t arrived, finished;
  struct request *waiting[MOST_WAITING]; /* first come first */
  int n;
  bool closed;
} queue;
static pthread_t workers[WORKERS];

/* Takes the first request that may run; sleeps while there is none.  NULL when the queue is closed
   and empty.  The queue's mutex is held. */
static struct request *take(void) {
  for (;;) {
    int64_t soonest_ns = 1000000000;
    for (int i = 0; i < queue.n; i++) {
      struct request *request = queue.waiting[i];
      int64_t wait_ns = request->client->psid ? penalty_pbox(request->client->psid) : 0;
      if (wait_ns <= 0 || is_over()) {
        memmove(&queue.waiting[i], &queue.waiting[i + 1],
                (size_t)(--queue.n - i) * sizeof queue.waiting[0]);
        return request;
      }
      if (wait_ns < soonest_ns) soonest_ns = wait_ns;
    }
    if (queue.closed && !queue.n) return NULL;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(soonest_ns % 1000000000);
    until.tv_sec += (time_t)(soonest_ns / 1000000000) + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&queue.arrived, &queue.mutex, &until);
  }
}

static void *work(void *nothing) {
  pthread_mutex_lock(&queue.mutex);
  for (struct request *request; (request = take());) {
    pthread_mutex_unlock(&queue.mutex);
    struct client *client = request->client;
    if (client->psid) bind_pbox(client->id, PBOX_SHARED);
    tell(&queue, PBOX_ENTER);
    tell(&queue, PBOX_HOLD);
    pause_ms(client->noisy ? SLOW_MS : FAST_MS);
    tell(&queue, PBOX_UNHOLD);
    if (client->psid) {
      freeze_pbox(client->psid);
      unbind_pbox(client->id, PBOX_LAZY);
    }
    pthread_mutex_lock(&queue.mutex);
    request->done = true;
    pthread_cond_broadcast(&queue.finished);
  }
  pthread_mutex_unlock(&queue.mutex);
  return nothing;
}

static void start(bool contended) {
  (void)contended;
  pthread_condattr_t clock;
  memset(&queue, 0, sizeof queue);
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_mutex_init(&queue.mutex, NULL);
  pthread_cond_init(&queue.arrived, &clock);
  pthread_cond_init(&queue.finished, NULL);
  for (int i = 0; i < WORKERS; i++) pthread_create(&workers[i], NULL, work, NULL);
}

static void stop(void) {
  pthread_mutex_lock(&queue.mutex);
  queue.closed = true;
  pthread_cond_broadcast(&queue.arrived);
  pthread_mutex_unlock(&queue.mutex);
  for (int i = 0; i < WORKERS; i++) pthread_join(workers[i], NULL);
}

/* A connection's thread: it reads the request, queues it, and waits for the answer. */
static void send_request(struct client *client) {
  struct request request = {.client = client};
  if (client->psid) {
    bind_pbox(client->id, PBOX_SHARED);
    activate_pbox(client->psid);
    tell(&queue, PBOX_PREPARE);
    unbind_pbox(client->id, PBOX_EAGER);
  }
  pthread_mutex_lock(&queue.mutex);
  queue.waiting[queue.n++] = &request;
  pthread_cond_signal(&queue.arrived);
  while (!request.done) pthread_cond_wait(&queue.finished, &queue.mutex);
  pthread_mutex_unlock(&queue.mutex);
}

int main(int argc, char **argv) {
  static const struct model model = {
      .id = "c11", .title = "slow request in a worker queue", .resource = "request queue",
      .victims = 4, .noisy = 6, .victim_think_ms = 1.0, .noisy_think_ms = 1.0,
      .request = send_request, .disturb = send_request, .start = start, .stop = stop,
      .own_activities = true,
  };
  return run_case(&model, argc, argv);
}
