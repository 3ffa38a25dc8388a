/*
 * kv_load.c - a closed-loop load on a server that speaks memcached's text protocol.
 *
 *   bench_kv_load PORT CONNECTIONS SECONDS
 *
 * Each connection is a thread; nine requests of ten read a key, one writes it, keys uniform over
 * a thousand, values of 100 bytes.  Prints requests, their rate and mean response time as JSON.
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

enum { MOST = 64, KEYS = 1000, VALUE = 100 };
static int port;
static double until_ns;
static unsigned long done[MOST];

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static void ask(int fd, const char *request, size_t bytes, const char *end) {
  char answer[512];
  size_t n = 0, end_bytes = strlen(end);
  if (send(fd, request, bytes, 0) != (ssize_t)bytes) fail("send");
  do {
    ssize_t more = recv(fd, answer + n, sizeof answer - n, 0);
    if (more <= 0) fail("recv");
    n += (size_t)more;
  } while (n < end_bytes || memcmp(answer + n - end_bytes, end, end_bytes));
}

static void *client(void *number) {
  long me = (long)number;
  int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, (struct sockaddr *)&to, sizeof to)) fail("connect");
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  char request[256], value[VALUE + 1];
  memset(value, 'v', VALUE);
  value[VALUE] = 0;
  unsigned random = (unsigned)me + 1;
  for (unsigned long i = 0; clock_ns() < until_ns; i++) {
    int key = rand_r(&random) % KEYS;
    int n = i % 10 == 0 ? snprintf(request, sizeof request, "set key%d 0 0 %d\r\n%s\r\n", key,
                                   VALUE, value)
                        : snprintf(request, sizeof request, "get key%d\r\n", key);
    ask(fd, request, (size_t)n, i % 10 == 0 ? "STORED\r\n" : "END\r\n");
    done[me]++;
  }
  close(fd);
  return NULL;
}

int main(int argc, char **argv) {
  long connections = argc == 4 ? strtol(argv[2], NULL, 10) : 0;
  double seconds = argc == 4 ? strtod(argv[3], NULL) : 0;
  if (connections < 1 || connections > MOST || !(seconds > 0)) {
    fprintf(stderr, "usage: %s PORT CONNECTIONS(1..%d) SECONDS\n", argv[0], MOST);
    return 2;
  }
  port = (int)strtol(argv[1], NULL, 10);
  double start = clock_ns();
  until_ns = start + seconds * 1e9;
  pthread_t threads[MOST];
  for (long i = 0; i < connections; i++)
    if (pthread_create(&threads[i], NULL, client, (void *)i)) fail("pthread_create");
  unsigned long total = 0;
  for (long i = 0; i < connections; i++) {
    pthread_join(threads[i], NULL);
    total += done[i];
  }
  if (!total) return 1;
  double taken_s = (clock_ns() - start) / 1e9;
  printf("{\"requests\": %lu, \"requests_per_s\": %.1f, \"response_us\": %.3f}\n", total,
         (double)total / taken_s,
         taken_s * 1e6 * (double)connections / (double)total);
  return 0;
}
