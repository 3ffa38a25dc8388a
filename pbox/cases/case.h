/*
 * case.h - what the cases share: clients in a closed loop, with and without a noisy neighbour,
 * with and without pBox, and the interference reduction ratio that comes of it (section 6.2).
 *
 *   T_o  mean response time of the victims without the noisy one
 *   T_i  with it, no pBox: the program makes none of its calls
 *   T_s  with it and pBox
 *   r = (T_i - T_s) / (T_i - T_o)
 *
 * The three take turns in short blocks, so that what else the machine does meets all of them;
 * each block starts everything anew, the length of penalties included.  As in the paper's
 * measurements (sysbench, ab), a client sends its next request after the last one's answer, so the
 * means are over requests.
 *
 * Work that is not waiting for a virtual resource is waiting for a device: it sleeps.  So what
 * two cores can do is no part of the result.
 */
#ifndef CASE_H
#define CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pbox.h"

struct client {
  unsigned id; /* of all clients, victims first */
  bool noisy;
  int psid; /* 0 without pBox */
  uint64_t random;
  unsigned count;      /* requests measured */
  double busy_ms;      /* their response times, summed up */
  double *response_ms; /* each of them, up to MOST_REQUESTS */
};

struct model {
  const char *id, *title, *resource;
  unsigned victims, noisy;
  double victim_think_ms, noisy_think_ms;
  void (*request)(struct client *client); /* one request of a victim */
  void (*disturb)(struct client *client); /* one of the noisy one */
  void (*start)(bool contended);          /* fresh state, background threads; NULL: nothing */
  void (*stop)(void);
  bool processes;    /* clients are processes, in a domain that they share */
  bool own_activities; /* the model itself says where activities begin and end */
};

/* Runs the case: [--seconds S] for each block, [--rounds N], [--drop PERCENT] of the events, as the
   paper's section 6.8 does; prints one JSON object. */
int run_case(const struct model *model, int argc, char **argv);

/* The block is over: whoever loops should end. */
bool is_over(void);

/* update_pbox() where pBox is on in this block. */
void tell(const void *key, enum pbox_event event);
bool with_pbox(void);

extern const IsolationRule case_rule; /* 50 %, the paper's */

void pause_ms(double ms);
double now_ms(void);
uint64_t draw(uint64_t *random, uint64_t below); /* uniform */

/* Memory that the processes of a case share; zeroed by each start. */
void *shared_memory(size_t bytes);

#endif
