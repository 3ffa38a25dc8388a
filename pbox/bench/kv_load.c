/*
 * kv_load.c - a closed-loop load on servers that speak memcached's text protocol, which take turns.
 *
 *   bench_kv_load CONNECTIONS SLICE_MS ROUNDS PORT PID [PORT PID]...
 *
 * In a round each server is loaded for a slice of time, in an order that is turned round with each
 * round: what else the computer does meets all of them.  Each connection is a thread; nine requests
 * of ten read a key, one writes it, keys uniform over a thousand, values of 100 bytes; each server
 * gets the same requests.
 *
 * Prints, as JSON, of each round and server: requests, the time that they took, and the processor
 * time that the server's process spent meanwhile, by its own clock.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "batches.h"

enum { MOST = 64, SERVERS = 4, KEYS = 1000, VALUE = 100 };

static int n_servers;
static struct server {
  int port;
  clockid_t cpu;
} servers[SERVERS];

static long n_clients;
static struct client {
  _Alignas(64) int fd[SERVERS];
  unsigned random[SERVERS];
  unsigned long done[SERVERS];
} clients[MOST];

/* What the clients do next, between the two barriers of a slice; by the main thread. */
static int loaded; /* < 0: they end */
static double until_ns;
static pthread_barrier_t begin, end;

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static void ask(int fd, const char *request, size_t bytes, const char *last) {
  char answer[512];
  size_t n = 0, last_bytes = strlen(last);
  if (send(fd, request, bytes, 0) != (ssize_t)bytes) fail("send");
  do {
    ssize_t more = recv(fd, answer + n, sizeof answer - n, 0);
    if (more <= 0) fail("recv");
    n += (size_t)more;
  } while (n < last_bytes || memcmp(answer + n - last_bytes, last, last_bytes));
}

static void write_key(int fd, int key) {
  char request[256];
  int n = snprintf(request, sizeof request, "set key%d 0 0 %d\r\n%0*d\r\n", key, VALUE, VALUE, key);
  ask(fd, request, (size_t)n, "STORED\r\n");
}

static void read_key(int fd, int key) {
  char request[256];
  int n = snprintf(request, sizeof request, "get key%d\r\n", key);
  ask(fd, request, (size_t)n, "END\r\n");
}

static int connection_to(int port) {
  int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, (struct sockaddr *)&to, sizeof to)) fail("connect");
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  return fd;
}

static void *client(void *given) {
  struct client *me = given;
  for (;;) {
    pthread_barrier_wait(&begin);
    int at = loaded;
    if (at < 0) return NULL;
    while (clock_ns() < until_ns) {
      int key = rand_r(&me->random[at]) % KEYS;
      (me->done[at]++ % 10 ? read_key : write_key)(me->fd[at], key);
    }
    pthread_barrier_wait(&end);
  }
}

static unsigned long requests_to(int server) {
  unsigned long total = 0;
  for (long i = 0; i < n_clients; i++) total += clients[i].done[server];
  return total;
}

static double seconds_of(clockid_t clock) {
  struct timespec t;
  if (clock_gettime(clock, &t)) fail("a server's clock");
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

struct slice {
  unsigned long requests;
  double taken_s, spent_s;
};

static struct slice load_for(int server, double slice_ms) {
  unsigned long before = requests_to(server);
  double cpu_s = seconds_of(servers[server].cpu), start = clock_ns();
  loaded = server;
  until_ns = start + slice_ms * 1e6;
  pthread_barrier_wait(&begin);
  pthread_barrier_wait(&end);
  return (struct slice){requests_to(server) - before, (clock_ns() - start) / 1e9,
                        seconds_of(servers[server].cpu) - cpu_s};
}

static void connect_all(void) {
  for (long i = 0; i < n_clients; i++)
    for (int at = 0; at < n_servers; at++) {
      clients[i].fd[at] = connection_to(servers[at].port);
      clients[i].random[at] = (unsigned)i + 1;
    }
  for (int at = 0; at < n_servers; at++)
    for (int key = 0; key < KEYS; key++) write_key(clients[0].fd[at], key);
}

int main(int argc, char **argv) {
  n_servers = (argc - 4) / 2;
  n_clients = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
  double slice_ms = argc > 2 ? strtod(argv[2], NULL) : 0;
  long rounds = argc > 3 ? strtol(argv[3], NULL, 10) : 0;
  if (argc < 6 || argc % 2 || n_servers > SERVERS || n_clients < 1 || n_clients > MOST ||
      !(slice_ms > 0) || rounds < 1) {
    fprintf(stderr, "usage: %s CONNECTIONS(1..%d) SLICE_MS ROUNDS PORT PID [PORT PID]...\n",
            argv[0], MOST);
    return 2;
  }
  for (int at = 0; at < n_servers; at++) {
    servers[at].port = (int)strtol(argv[4 + 2 * at], NULL, 10);
    pid_t pid = (pid_t)strtol(argv[5 + 2 * at], NULL, 10);
    if (clock_getcpuclockid(pid, &servers[at].cpu)) fail("clock_getcpuclockid");
  }
  connect_all();
  pthread_barrier_init(&begin, NULL, (unsigned)n_clients + 1);
  pthread_barrier_init(&end, NULL, (unsigned)n_clients + 1);
  pthread_t threads[MOST];
  for (long i = 0; i < n_clients; i++)
    if (pthread_create(&threads[i], NULL, client, &clients[i])) fail("pthread_create");
  for (long round = 0; round < rounds; round++) {
    struct slice seen[SERVERS];
    for (int i = 0; i < n_servers; i++) {
      int at = round % 2 ? n_servers - 1 - i : i;
      seen[at] = load_for(at, slice_ms);
    }
    for (int at = 0; at < n_servers; at++)
      printf("%s{\"requests\": %lu, \"taken_s\": %.6f, \"spent_s\": %.6f}",
             at ? ", " : round ? "],\n [" : "{\"rounds\": [[", seen[at].requests,
             seen[at].taken_s, seen[at].spent_s);
  }
  printf("]]}\n");
  loaded = -1;
  pthread_barrier_wait(&begin);
  for (long i = 0; i < n_clients; i++) pthread_join(threads[i], NULL);
  return 0;
}
