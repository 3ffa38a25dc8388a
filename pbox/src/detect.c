/*
 * detect.c - who is deferred beyond its goal, and by whom.
 *
 * PROBLEM
 *   The interference level of an activity is T_f = T_d / (T_e - T_d), the additional time over
 *   that without deferral.  It is known when the activity has ended; by then it is too late.
 *
 * METHOD (section 4.3, Algorithm 1)
 *   When a pBox gives a resource back, each pBox that waits for it is looked at: if it went on as
 *   until now, t_f = t_d / (t_e - t_d), would it miss its goal lambda?  If so, the one that held
 *   the resource is noisy and the one that waits is its victim.  Besides, at the end of each
 *   activity the pBox's recent activities are held against 90 % of the goal, by their mean
 *   T_d / (mean T_e - mean T_d), their 95th percentile, or their largest.
 *
 * DEPARTURES
 *   - t_f is t_d / (t_e - t_d).  Line 22 of Algorithm 1 prints t_e / (t_d - t_e), negative always.
 *   - t_e - t_d is at least what the pBox's recent activities took without deferral.  As printed it
 *     is nearly 0 for an activity that begins with its wait, and whatever the wait, any goal is
 *     missed: fast requests would be penalised for passing each other.
 *   - Line 23 blames who held the resource when the wait began.  Here each holder's share of the
 *     wait is summed up over the activity, and it is noisy when that share alone misses the goal.
 *     As printed, a pBox that holds a ticket for a moment answers for what others did before, and
 *     one that takes a lock again and again while somebody waits answers for its first hold only.
 *   - Among several, only the foremost are noisy: whom another one surpasses twice over as the cause
 *     of this victim's recent waits is not.  When slow requests hold all but one of the units of a
 *     resource, each fast one that passes through the last unit is a holder, too.
 *   - One penalty an event, for the victim that suffers most; as printed there is one for each.
 *   - The history is that of the last RECENT activities.  As printed it is everything since the
 *     start, which after an hour of quiet sees no interference, and after one of interference
 *     sees nothing else.
 *   - At the end of an activity it is not said whom to penalise.  Of those that had a part in it,
 *     the pBox that has deferred this one most, now and lately, is asked to, if it is foremost, if
 *     its share alone misses the goal and if it has not been sentenced within the activity; it
 *     decides the length itself, at its next safe moment.  Who has ended is left out of it all.
 *   - t_d above t_e, which overlapping waits and missing calls can make, is a level of LEVEL_MOST.
 */
#include <math.h>

#include "internal.h"

#define LEVEL_MOST 1e6 /* finite, so that it can be averaged, compared and printed */

double level_of(double deferred_ns, double executed_ns) {
  double undeferred_ns = executed_ns - deferred_ns;
  if (deferred_ns <= 0) return 0;
  if (undeferred_ns * LEVEL_MOST <= deferred_ns) return LEVEL_MOST;
  return deferred_ns / undeferred_ns;
}

/* s of a pBox: its recent activities and the one in progress. */
static double ratio_with(const struct box *box, uint64_t deferred_ns, uint64_t executed_ns) {
  double t_d = (double)(load(box->recent_deferred_ns) + deferred_ns);
  double t_e = (double)(load(box->recent_executed_ns) + executed_ns);
  return t_e <= 0 ? 0 : t_d < t_e ? t_d / t_e : 1;
}

/* T_e - T_d of a pBox's recent activities, the mean; 0 before the first. */
static double usual_undeferred_ns(const struct box *box) {
  unsigned n = load(box->n_recent);
  double t_e = (double)load(box->recent_executed_ns), t_d = (double)load(box->recent_deferred_ns);
  return n && t_e > t_d ? (t_e - t_d) / n : 0;
}

/* The 95th percentile of RECENT numbers by rank (ceil(0.95 n)): the (n - rank + 1)th largest, so
   only the largest few need to be kept in order. */
static double tail_of(const float *level, unsigned n) {
  enum { MOST = RECENT / 20 + 1 };
  float largest[MOST] = {0};
  unsigned wanted = n - (95 * n + 99) / 100 + 1;
  for (unsigned i = 0; i < n; i++) {
    unsigned at = wanted;
    while (at > 0 && level[i] > largest[at - 1]) {
      if (at < wanted) largest[at] = largest[at - 1];
      at--;
    }
    if (at < wanted) largest[at] = level[i];
  }
  return largest[wanted - 1];
}

double recent_level(const struct box *box, enum pbox_metric metric) {
  if (!box->n_recent) return -1;
  if (!box->recent_deferred_ns) return 0; /* by any metric */
  if (metric == PBOX_AVERAGE)
    return level_of((double)box->recent_deferred_ns, (double)box->recent_executed_ns);
  if (metric == PBOX_TAIL) return tail_of(box->level, box->n_recent);
  float most = 0;
  for (unsigned i = 0; i < box->n_recent; i++)
    if (box->level[i] > most) most = box->level[i];
  return most;
}

/* 0 for one that has ended: its slot may be another's, who has nothing to do with it. */
static uint64_t all_of(const struct blame *one) {
  return box_of((int)load(one->psid)) ? load(one->now_ns) + load(one->past_ns) : 0;
}

/* How long `noisy` has deferred `victim` in this activity, `more_ns` added. */
static struct blame *blame(struct box *victim, uint32_t noisy_psid, uint64_t key,
                           uint64_t more_ns) {
  struct blame *least = &victim->blamed[0];
  uint64_t least_ns = UINT64_MAX;
  for (int i = 0; i < BLAMED; i++) {
    struct blame *one = &victim->blamed[i];
    if (load(one->psid) == noisy_psid) {
      add(one->now_ns, more_ns);
      store(one->key, key);
      return one;
    }
    uint64_t ns = all_of(one);
    if (ns < least_ns) {
      least = one;
      least_ns = ns;
    }
  }
  /* Two noisy ones may take the same entry at once: one is forgotten until its next UNHOLD. */
  store(least->past_ns, 0);
  store(least->now_ns, more_ns);
  store(least->key, key);
  store(least->sentenced, false);
  store(least->psid, noisy_psid);
  store(victim->blames, true);
  return least;
}

/* Has no other one deferred this pBox more than twice as long, now and lately? */
static bool is_foremost(const struct box *victim, const struct blame *entry) {
  uint64_t mine_ns = all_of(entry);
  for (int i = 0; i < BLAMED; i++)
    if (all_of(&victim->blamed[i]) > 2 * mine_ns) return false;
  return true;
}

static uint64_t waits_since(const struct box *box, uint64_t key) {
  for (int i = 0; i < WAITS; i++)
    if (load(box->waits[i].key) == key) return load(box->waits[i].since_ns);
  return 0;
}

void detect(struct box *noisy, uint64_t key, uint32_t place, uint64_t held_since_ns, uint64_t now) {
  struct domain *domain = pbox_domain;
  uint32_t self = index_of(noisy);
  struct effect effect = {0};
  struct pbox_page_slot *victim = NULL;
  struct blame *charge = NULL;
  double worst = 0;

  for (uint32_t i = 0; i < SEATS; i++) {
    uint32_t waiting = load(domain->seats[place * SEATS + i]);
    if (!waiting || waiting == self + 1 || waiting > domain->n_boxes) continue;
    struct box *box = &domain->boxes[waiting - 1];
    struct pbox_page_slot *slot = &domain->slots[waiting - 1];
    uint64_t since = waits_since(box, key), start = load(slot->activity_start_ns);
    if (!since || since >= now || now - since > ABANDONED_NS || !start || start >= now) continue;

    uint64_t mine_from = since > held_since_ns ? since : held_since_ns;
    struct blame *entry = blame(box, load(domain->slots[self].psid), key, now - mine_from);
    uint64_t executed_ns = now - start, paused = paused_ns(box, slot, now);
    executed_ns = paused < executed_ns ? executed_ns - paused : 0;
    uint64_t deferred_ns = load(slot->activity_deferred_ns) + (now - since);
    double t_d = (double)deferred_ns, mine_ns = (double)load(entry->now_ns);
    double undeferred_ns = fmax((double)executed_ns - t_d, usual_undeferred_ns(box));
    double goal = load_double(&slot->goal), level = level_of(t_d, undeferred_ns + t_d);
    double mine = level_of(mine_ns, undeferred_ns + mine_ns);
    if (level > goal && mine > goal && level > worst && is_foremost(box, entry)) {
      worst = level;
      victim = slot;
      charge = entry;
      effect.ratio = ratio_with(box, deferred_ns, executed_ns);
      effect.goal = goal;
      effect.deferred_ns = deferred_ns;
    }
  }
  if (!victim) return;
  if (waits_in_vain((uint32_t)(victim - domain->slots))) return;
  store(charge->sentenced, true);
  add(victim->times_victim, 1);
  add(domain->slots[self].times_noisy, 1);
  add(domain->keys[place].noisy, 1);
  sentence(noisy, key, &effect, now);
}

/* Whom this pBox blames most among those that had a part in this activity; NULL for nobody. */
static struct blame *most_blamed(struct box *box) {
  struct blame *most = NULL;
  uint64_t most_ns = 0;
  for (int i = 0; i < BLAMED; i++) {
    struct blame *one = &box->blamed[i];
    uint64_t ns = load(one->now_ns) ? all_of(one) : 0;
    if (ns > most_ns) {
      most = one;
      most_ns = ns;
    }
  }
  return most && is_foremost(box, most) ? most : NULL;
}

/* Posts a complaint to that one if its share alone misses the goal, now or lately. */
COLD static void complain(struct box *box, struct pbox_page_slot *slot, uint64_t deferred_ns,
                     uint64_t executed_ns) {
  struct blame *most = most_blamed(box);
  if (!most || load(most->sentenced)) return;
  double goal = load_double(&slot->goal), lately = (double)all_of(most);
  double now = (double)load(most->now_ns);
  double undeferred_ns = fmax((double)executed_ns - (double)deferred_ns, usual_undeferred_ns(box));
  double share = fmax(level_of(now, undeferred_ns + now),
                      level_of(lately, usual_undeferred_ns(box) * box->n_recent + lately));
  struct box *noisy = box_of((int)load(most->psid));
  if (share <= NEAR_GOAL * goal || !noisy) return;
  struct complaint *complaint = &noisy->complaint;
  store(complaint->psid, load(most->psid));
  store(complaint->deferred_ns, deferred_ns);
  store_double(&complaint->ratio, ratio_with(box, 0, 0));
  store_double(&complaint->goal, goal);
  store(complaint->key, load(most->key));
  add(slot->times_victim, 1);
}

void forget_blame(struct box *box) {
  for (int i = 0; i < BLAMED; i++) {
    struct blame *one = &box->blamed[i];
    if (!load(one->psid)) continue;
    store(one->past_ns, load(one->past_ns) - load(one->past_ns) / RECENT + load(one->now_ns));
    store(one->now_ns, 0);
    store(one->sentenced, false);
  }
}

static void remember_activity(struct box *box, enum pbox_metric metric, uint64_t deferred_ns,
                              uint64_t executed_ns) {
  unsigned at = box->at_recent;
  struct activity *one = &box->recent[at];
  if (box->n_recent == RECENT) {
    store(box->recent_deferred_ns, box->recent_deferred_ns - one->deferred_ns);
    store(box->recent_executed_ns, box->recent_executed_ns - one->executed_ns);
  } else {
    store(box->n_recent, box->n_recent + 1);
  }
  *one = (struct activity){executed_ns, deferred_ns};
  if (metric != PBOX_AVERAGE)
    box->level[at] = (float)level_of((double)deferred_ns, (double)executed_ns);
  store(box->recent_deferred_ns, box->recent_deferred_ns + deferred_ns);
  store(box->recent_executed_ns, box->recent_executed_ns + executed_ns);
  box->at_recent = (at + 1) % RECENT;
}

void end_activity(struct box *box, struct pbox_page_slot *slot, uint64_t now) {
  if (box->n_waits) drop_waits(box, slot);
  if (box->paused_from_ns) {
    leave_out_pause(box, slot, now);
    store(box->paused_from_ns, 0);
  }
  enum pbox_metric metric = (enum pbox_metric)slot->metric;
  uint64_t start = slot->activity_start_ns, deferred_ns = slot->activity_deferred_ns;
  uint64_t executed_ns = now > start ? now - start : 0;
  remember_activity(box, metric, deferred_ns, executed_ns);
  double level = recent_level(box, metric);
  if (deferred_ns && level > NEAR_GOAL * load_double(&slot->goal))
    complain(box, slot, deferred_ns, executed_ns);
  if (load(box->blames)) forget_blame(box);
  if ((box->n_holds || box->more_holds) && pbox_domain->holds_end) {
    note_mistake(slot); /* an UNHOLD is missing */
    box->n_holds = box->more_holds = 0;
  }
  box->active = false;
  begin_write(slot);
  store(slot->state, PBOX_SLOT_FROZEN);
  store_double(&slot->level, level);
  store(slot->activities, slot->activities + 1);
  store(slot->executed_ns, slot->executed_ns + executed_ns);
  store(slot->deferred_ns, slot->deferred_ns + deferred_ns);
  store(slot->activity_start_ns, 0);
  store(slot->activity_deferred_ns, 0);
  end_write(slot);
}
