#include "case.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_CLIENTS = 16, MOST_REQUESTS = 20000, PHASES = 3 };
enum phase { ALONE, CONTENDED, MITIGATED };

const IsolationRule case_rule = {PBOX_RELATIVE, PBOX_AVERAGE, 50};

static const struct model *model;
static uint64_t dropped_percent; /* of the calls of update_pbox() */

/* All that clients write, in memory that processes share. */
static struct block {
  int over, measuring;
  enum phase phase;
  struct client clients[MOST_CLIENTS];
  struct pbox_stats stats[MOST_CLIENTS];
  double response_ms[MOST_CLIENTS][MOST_REQUESTS];
} *block;

struct figures {
  double *all_ms; /* of the victims */
  size_t count;
  double noisy_ms; /* sum */
  size_t noisy_count;
  uint64_t penalties, penalty_ns; /* of the noisy ones */
  uint64_t unjust;                /* penalties of victims */
};
static struct figures figures[PHASES];

double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

void pause_ms(double ms) {
  struct timespec t = {(time_t)(ms / 1e3), (long)(fmod(ms, 1e3) * 1e6)};
  if (ms > 0) nanosleep(&t, NULL);
}

uint64_t draw(uint64_t *random, uint64_t below) {
  *random ^= *random << 13; /* xorshift64 (Marsaglia 2003) */
  *random ^= *random >> 7;
  *random ^= *random << 17;
  return *random % below;
}

bool is_over(void) { return __atomic_load_n(&block->over, __ATOMIC_RELAXED); }

bool with_pbox(void) { return block->phase == MITIGATED; }

void tell(const void *key, enum pbox_event event) {
  static _Thread_local uint64_t random;
  if (!with_pbox()) return;
  if (!random) random = (uint64_t)(uintptr_t)&random | 1;
  if (dropped_percent && draw(&random, 100) < dropped_percent) return;
  update_pbox((size_t)key, event);
}

void *shared_memory(size_t bytes) {
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) abort();
  return at;
}

/* A case in which a client is missing, or is heard for a part of a block only, has no figures. */
static void fail(const char *what) {
  fprintf(stderr, "%s: %s\n", model->id, what);
  __atomic_store_n(&block->over, 1, __ATOMIC_RELAXED);
  exit(1);
}

static void note(struct client *client, double response_ms) {
  if (!__atomic_load_n(&block->measuring, __ATOMIC_RELAXED)) return;
  if (client->count == MOST_REQUESTS) fail("more requests in a block than fit; give fewer --seconds");
  client->response_ms[client->count++] = response_ms;
  client->busy_ms += response_ms;
}

static void *live(void *argument) {
  struct client *client = argument;
  bool boxed = with_pbox();
  if (boxed) {
    client->psid = create_pbox(case_rule);
    if (client->psid < 0) abort();
    if (model->own_activities) unbind_pbox(client->id, PBOX_EAGER);
  }
  bool activities = boxed && !model->own_activities;
  double think_ms = client->noisy ? model->noisy_think_ms : model->victim_think_ms;
  while (!is_over()) {
    double start = now_ms();
    if (activities) activate_pbox(client->psid);
    (client->noisy ? model->disturb : model->request)(client);
    if (activities) freeze_pbox(client->psid);
    note(client, now_ms() - start); /* a penalty is part of the response */
    pause_ms(think_ms * (0.5 + (double)draw(&client->random, 1024) / 1024)); /* no lockstep */
  }
  if (boxed) {
    stat_pbox(client->psid, &block->stats[client->id]);
    if (model->own_activities) bind_pbox(client->id, PBOX_DEDICATED);
    release_pbox(client->psid);
  }
  return NULL;
}

static void run_block(enum phase phase, double seconds, uint64_t seed) {
  unsigned n = model->victims + (phase == ALONE ? 0 : model->noisy);
  char domain[32];
  snprintf(domain, sizeof domain, "case-%s-%d", model->id, getpid());
  struct pbox_options options = {.page = "", .domain = model->processes ? domain : NULL,
                                 .holds = PBOX_HOLDS_END};
  memset(block, 0, offsetof(struct block, response_ms));
  block->phase = phase;
  if (with_pbox() && open_pbox(&options)) abort();
  if (model->start) model->start(phase != ALONE);

  pthread_t threads[MOST_CLIENTS];
  pid_t children[MOST_CLIENTS];
  for (unsigned i = 0; i < n; i++) {
    block->clients[i] = (struct client){
        .id = i, .noisy = i >= model->victims, .response_ms = block->response_ms[i],
        .random = seed * 1000 + i + 1};
    if (!model->processes) {
      if (pthread_create(&threads[i], NULL, live, &block->clients[i])) fail("no thread for a client");
    } else if ((children[i] = fork()) == 0) {
      live(&block->clients[i]);
      _exit(0);
    } else if (children[i] < 0) {
      fail("no process for a client");
    }
  }
  pause_ms(seconds * 250); /* the first quarter: caches fill, penalties find their length */
  __atomic_store_n(&block->measuring, 1, __ATOMIC_RELAXED);
  pause_ms(seconds * 1000);
  __atomic_store_n(&block->measuring, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&block->over, 1, __ATOMIC_RELAXED);
  for (unsigned i = 0; i < n; i++) {
    int status = 0;
    if (!model->processes)
      pthread_join(threads[i], NULL);
    else if (waitpid(children[i], &status, 0) < 0 || status)
      fail("a client has failed");
  }
  if (model->stop) model->stop();
  if (with_pbox()) close_pbox();

  struct figures *sum = &figures[phase];
  for (unsigned i = 0; i < n; i++) {
    struct client *client = &block->clients[i];
    if (client->noisy) {
      sum->penalties += block->stats[i].penalties;
      sum->penalty_ns += block->stats[i].penalty_ns;
      sum->noisy_count += client->count;
      sum->noisy_ms += client->busy_ms;
    } else {
      sum->unjust += block->stats[i].penalties;
      sum->all_ms = realloc(sum->all_ms, (sum->count + client->count) * sizeof *sum->all_ms);
      memcpy(sum->all_ms + sum->count, client->response_ms, client->count * sizeof *sum->all_ms);
      sum->count += client->count;
    }
  }
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double mean_of(const struct figures *one) {
  double sum = 0;
  for (size_t i = 0; i < one->count; i++) sum += one->all_ms[i];
  return sum / (double)one->count;
}

static double p95_of(struct figures *one) {
  qsort(one->all_ms, one->count, sizeof *one->all_ms, by_size);
  return one->all_ms[(one->count * 95 + 99) / 100 - 1];
}

static double reduction(double t_o, double t_i, double t_s) { return (t_i - t_s) / (t_i - t_o); }

static int report(void) {
  double mean[PHASES], p95[PHASES];
  for (int phase = 0; phase < PHASES; phase++) {
    if (!figures[phase].count) {
      fprintf(stderr, "%s: no request of a victim ended in a block; give more --seconds\n",
              model->id);
      return 1;
    }
    mean[phase] = mean_of(&figures[phase]);
    p95[phase] = p95_of(&figures[phase]);
  }
  struct figures *before = &figures[CONTENDED], *after = &figures[MITIGATED];
  printf("{\"case\": \"%s\", \"title\": \"%s\", \"resource\": \"%s\", "
         "\"t_o_ms\": %.4f, \"t_i_ms\": %.4f, \"t_s_ms\": %.4f, \"level\": %.2f, "
         "\"reduction\": %.4f, \"p95_o_ms\": %.4f, \"p95_i_ms\": %.4f, \"p95_s_ms\": %.4f, "
         "\"p95_reduction\": %.4f, \"requests\": [%zu, %zu, %zu], \"noisy_requests\": [%zu, %zu], "
         "\"noisy_ms\": [%.4f, %.4f], \"penalties\": %llu, \"penalty_ms\": %.4f, "
         "\"victims_penalties\": %llu}\n",
         model->id, model->title, model->resource, mean[0], mean[1], mean[2],
         mean[1] / mean[0] - 1, reduction(mean[0], mean[1], mean[2]), p95[0], p95[1], p95[2],
         reduction(p95[0], p95[1], p95[2]), figures[0].count, before->count, after->count,
         before->noisy_count, after->noisy_count,
         before->noisy_ms / fmax(1, (double)before->noisy_count),
         after->noisy_ms / fmax(1, (double)after->noisy_count),
         (unsigned long long)after->penalties,
         (double)after->penalty_ns / 1e6 / fmax(1, (double)after->penalties),
         (unsigned long long)after->unjust);
  return 0;
}

int run_case(const struct model *what, int argc, char **argv) {
  double seconds = 1.0;
  long rounds = 3;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!strcmp(argv[i], "--seconds"))
      seconds = strtod(argv[i + 1], NULL);
    else if (!strcmp(argv[i], "--rounds"))
      rounds = strtol(argv[i + 1], NULL, 10);
    else if (!strcmp(argv[i], "--drop"))
      dropped_percent = strtoul(argv[i + 1], NULL, 10);
    else
      argc = 2; /* fall into the complaint below */
  }
  if (argc % 2 == 0 || !(seconds > 0 && seconds <= 60) || rounds < 1 || rounds > 100) {
    fprintf(stderr, "usage: %s [--seconds 0..60, of a block] [--rounds 1..100] "
            "[--drop PERCENT of the events]\n", argv[0]);
    return 2;
  }
  model = what;
  prctl(PR_SET_TIMERSLACK, 1ul); /* or each short sleep takes 50 us more */
  block = shared_memory(sizeof *block);
  for (long round = 0; round < rounds; round++)
    for (int phase = 0; phase < PHASES; phase++)
      run_block((enum phase)phase, seconds, (uint64_t)(round * PHASES + phase + 1));
  return report();
}
