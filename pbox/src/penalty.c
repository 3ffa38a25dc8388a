/*
 * penalty.c - how long a noisy pBox is delayed, and when.
 *
 * PROBLEM
 *   Delay the noisy pBox long enough for its victims to meet their goal, and no longer.
 *
 * FORMULAS (section 4.4.2)
 *   first:        p_1 = sqrt(t_d(victim) t_e(noisy)) - t_e(noisy)
 *   score-based:  score + 1 if s(i+1) > s(i), else - 1 down to 0;  p_(i+1) = p_i (1 + score / 5)
 *   gap-based:    gap = f(i+1) - lambda, delta = 1 - s(i) / s(i+1);  p_(i+1) = p_i gap / |delta|
 *   where s = T_d / T_e of the victim and f = s / (1 - s).
 *
 * REGIMES
 *   t_d much larger than p: the penalty is far from enough, the gap rule takes large steps.
 *   t_d comparable with p: the score rule creeps up while penalties do not help, then stays.
 *   victim below its goal on average: the gap is negative, the penalty halves.
 *
 * DEPARTURES, each because the printed rule is ill-posed
 *   - gap compares f with lambda.  Printed is s - lambda, but s is below 1 whatever happens, and a
 *     goal of 100 % or more could never be missed; f is what the goal is defined for (4.3.1).
 *   - |delta|.  When the last penalty helped, delta is negative and the printed length as well;
 *     when it changed nothing, it divides by zero.  By its absolute value the rule is a secant
 *     step: a penalty that changed little has far to go, one that changed much has not.
 *   - each step is within [0.5, 10], and the length within [penalty_min, penalty_max]: p_1 is
 *     negative whenever t_d < t_e, and delta near 0 makes any length.
 *   - whose s?  That of the worst victim at each action; the victims of one resource take turns.
 *   - one penalty at a time: sentences of several victims do not add up, the longest counts.
 *   - a penalty waits until the pBox holds nothing (as printed) and waits for nothing: a wait that
 *     contains a penalty would look like deferral and punish a third (the paper's cascade).  On a
 *     shared thread, where the program waits for its end, waits count from there, and so does T_e.
 *   - p_1 of a pBox that hears of it between activities is by the T_e of its last one.
 */
#include <errno.h>
#include <math.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"

#define ALPHA 5.0          /* the paper's default */
#define STEP_LEAST 0.5
#define STEP_MOST 10.0
#define MUCH_LARGER 10.0   /* the largest step: below it the gap rule could overshoot in one */

uint64_t first_penalty(uint64_t victim_deferred_ns, uint64_t noisy_executed_ns) {
  double t_d = (double)victim_deferred_ns, t_e = (double)noisy_executed_ns;
  double length = sqrt(t_d * t_e) - t_e;
  return length > 0 ? (uint64_t)length : 0;
}

static double within(double value, double least, double most) {
  if (!(value > least)) return least; /* NaN too */
  return value < most ? value : most;
}

double penalty_step(struct penalty *last, const struct effect *effect) {
  if ((double)effect->deferred_ns >= MUCH_LARGER * (double)last->length_ns) {
    double gap = level_of(effect->ratio, 1.0) - effect->goal;
    double delta = effect->ratio > 0 ? fabs(1.0 - last->ratio / effect->ratio) : 0;
    if (delta > 0) return within(gap / delta, STEP_LEAST, STEP_MOST);
    return gap > 0 ? STEP_MOST : STEP_LEAST;
  }
  if (effect->ratio > last->ratio)
    last->score++;
  else if (last->score)
    last->score--;
  return within(1.0 + last->score / ALPHA, STEP_LEAST, STEP_MOST);
}

static uint64_t clamp_length(double length_ns) {
  const struct arena *arena = pbox_domain->arena;
  return (uint64_t)within(length_ns, (double)arena->penalty_min_ns, (double)arena->penalty_max_ns);
}

/* The memory of the last penalty for this key, or the place of the oldest, emptied. */
static struct penalty *memory_of(struct box *noisy, uint64_t key, uint64_t now) {
  struct penalty *oldest = &noisy->remembered[0];
  for (int i = 0; i < REMEMBERED; i++) {
    struct penalty *one = &noisy->remembered[i];
    if (one->key == key) {
      if (now - one->at_ns > FORGET_NS) one->length_ns = 0;
      return one;
    }
    if (one->at_ns < oldest->at_ns) oldest = one;
  }
  *oldest = (struct penalty){.key = key};
  return oldest;
}

/* T_e of a pBox's activity, or of its last one. */
static uint64_t executed_ns_of(const struct box *box, uint64_t now) {
  if (!box->active)
    return box->n_recent ? box->recent[(box->at_recent + RECENT - 1) % RECENT].executed_ns : 0;
  const struct pbox_page_slot *slot = &pbox_domain->slots[index_of(box)];
  uint64_t from = slot->activity_start_ns + paused_ns(box, slot, now);
  return from < now ? now - from : 0;
}

/* Runs in the noisy pBox's own thread, like all that changes what it remembers. */
void sentence(struct box *noisy, uint64_t key, const struct effect *effect, uint64_t now) {
  struct penalty *last = memory_of(noisy, key, now);
  if (!last->length_ns) {
    uint64_t executed_ns = executed_ns_of(noisy, now);
    last->score = 0;
    last->length_ns = clamp_length((double)first_penalty(effect->deferred_ns, executed_ns));
  } else {
    last->length_ns = clamp_length((double)last->length_ns * penalty_step(last, effect));
  }
  last->ratio = effect->ratio;
  last->at_ns = now;
  if (last->length_ns > noisy->pending_ns) noisy->pending_ns = last->length_ns;
}

static void hear_complaint(struct box *box, uint64_t now) {
  uint64_t key = swap(box->complaint.key, 0);
  if (!key || load(box->complaint.psid) != (uint32_t)psid_of(box)) return;
  struct effect effect = {
      .ratio = load_double(&box->complaint.ratio),
      .goal = load_double(&box->complaint.goal),
      .deferred_ns = load(box->complaint.deferred_ns),
  };
  add(pbox_domain->slots[index_of(box)].times_noisy, 1);
  sentence(box, key, &effect, now);
}

/* By the system call itself: under the shim the C library's name would be the shim's own. */
static void sleep_ns(uint64_t ns) {
  struct timespec left = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
  while (syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &left, &left) == -1 && errno == EINTR) {
  }
}

/* How much of a shared thread's activity so far was penalty, and is not taken out of it yet. */
uint64_t paused_ns(const struct box *box, const struct pbox_page_slot *slot, uint64_t now) {
  uint64_t from = load(box->paused_from_ns), until = load(slot->not_before_ns);
  if (until > now) until = now;
  return from && until > from ? until - from : 0;
}

/* Takes it out: a penalty is no execution. */
void leave_out_pause(struct box *box, struct pbox_page_slot *slot, uint64_t now) {
  uint64_t paused = paused_ns(box, slot, now);
  store(box->paused_from_ns, load(slot->not_before_ns) > now ? now : 0);
  if (!paused) return;
  begin_write(slot);
  store(slot->activity_start_ns, slot->activity_start_ns + paused);
  end_write(slot);
}

void serve_penalty(struct box *box, struct pbox_page_slot *slot) {
  uint64_t now = now_ns();
  hear_complaint(box, now);
  if (!box->pending_ns || box->n_waits || box->n_holds || box->more_holds) return;
  uint64_t length_ns = box->pending_ns;
  box->pending_ns = 0;
  if (!pbox_domain->mitigates) return;
  int saved = errno; /* a penalty may come at the end of any of the program's calls */
  if (!box->shared) sleep_ns(length_ns);
  errno = saved;
  if (box->paused_from_ns) leave_out_pause(box, slot, now);
  begin_write(slot);
  store(slot->penalties, slot->penalties + 1);
  store(slot->penalty_ns, slot->penalty_ns + length_ns);
  if (!box->shared && slot->activity_start_ns) /* a penalty is no execution: T_e goes on after it */
    store(slot->activity_start_ns, slot->activity_start_ns + (now_ns() - now));
  if (box->shared && now + length_ns > slot->not_before_ns) /* a longer one may have been pending */
    store(slot->not_before_ns, now + length_ns);
  end_write(slot);
  if (box->shared && box->active) store(box->paused_from_ns, now);
}
