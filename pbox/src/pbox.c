/*
 * pbox.c - the life of a pBox: made, bound to threads, its activities, its end (pbox.h).
 *
 * Binding is one word of the box: the psid and a thread.  Whoever changes the thread from 0
 * (nobody's), or from one that detached it lazily, to its own id has the box to itself until it
 * gives it back; that exchange is also what makes the last thread's writes visible to the next
 * one.  With the psid in it, it fails when the box has meanwhile become another pBox.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

/* A psid is 15 bits of generation over 16 bits of index + 1: positive, and void when reused. */
enum { INDEX_BITS = 16, GENERATION_MASK = 0x7fff };

enum { MOST_LOOKS = 1000 }; /* for a copy of figures that somebody is writing */

int psid_of(const struct box *box) {
  return (int)((box->generation & GENERATION_MASK) << INDEX_BITS | (index_of(box) + 1));
}

struct box *box_of(int psid) {
  struct domain *domain = load(pbox_domain);
  uint32_t index = ((uint32_t)psid & ((1u << INDEX_BITS) - 1)) - 1;
  if (!domain || psid <= 0 || index >= domain->n_boxes) return NULL;
  return load(domain->slots[index].psid) == (uint32_t)psid ? &domain->boxes[index] : NULL;
}

static struct pbox_page_slot *slot_of(const struct box *box) {
  return &pbox_domain->slots[index_of(box)];
}

/* The thread's own pBox, or NULL: what it remembers of a domain that was closed is void. */
static struct box *own(void) {
  return pbox_self.epoch == load(pbox_epoch) ? pbox_self.box : NULL;
}

/* For anybody, or with LAZY rather for this thread. */
static void let_go(uint32_t thread) {
  struct box *box = own();
  pbox_self.box = NULL;
  pbox_self.epoch = load(pbox_epoch);
  if (box) store(box->binding, bound_to(psid_of(box), thread));
}

bool thread_lives(uint32_t pid, uint32_t tid) {
  return tgkill((pid_t)pid, (pid_t)tid, 0) == 0 || errno != ESRCH;
}

static int take(int psid) {
  struct box *box = box_of(psid);
  if (!box) return -ENOENT;
  if (own() == box) return 0;
  struct pbox_page_slot *slot = slot_of(box);
  if (load(slot->pid) != pbox_domain->pid) return -ENOENT;
  uint32_t me = this_thread();
  uint64_t binding = load(box->binding);
  do {
    uint32_t thread = thread_of(binding);
    if (binding != bound_to(psid, thread)) return -ENOENT;
    if (thread && !(thread & LAZY) && thread != me && thread_lives(pbox_domain->pid, thread))
      return -EBUSY; /* but one that ended without giving it back must not keep it for ever */
  } while (!claim(box->binding, &binding, bound_to(psid, me)));
  let_go(0);
  pbox_self.box = box;
  pbox_self.slot = slot;
  begin_write(slot);
  store(slot->tid, me);
  end_write(slot);
  return 0;
}

static void show_use_of(uint32_t index) {
  uint32_t used = load(pbox_domain->page->slot_used);
  while (used <= index && !claim(pbox_domain->page->slot_used, &used, index + 1)) {
  }
}

static int check_rule(IsolationRule rule) {
  if (rule.type != PBOX_RELATIVE) return -EINVAL;
  if (rule.metric != PBOX_AVERAGE && rule.metric != PBOX_TAIL && rule.metric != PBOX_MAX)
    return -EINVAL;
  return rule.isolation_level < 1 || rule.isolation_level > 100000 ? -EINVAL : 0;
}

static uint32_t free_box(void) {
  uint32_t index = pool_take();
  if (index != NOWHERE || !pbox_domain->processes) return index;
  reap_all();
  return pool_take();
}

/* By atomic stores: somebody may still look at what was there. */
static void clear(void *from, size_t bytes) {
  uint64_t *words = from;
  for (size_t i = 0; i < bytes / sizeof *words; i++) __atomic_store_n(&words[i], 0, __ATOMIC_RELAXED);
}

int create_pbox(IsolationRule rule) {
  int result = check_rule(rule);
  if (!result) result = domain_or_default();
  if (result) return result;
  uint32_t index = free_box();
  if (index == NOWHERE) {
    add(pbox_domain->page->slots_refused, 1);
    return -ENOSPC;
  }
  struct box *box = &pbox_domain->boxes[index];
  struct pbox_page_slot *slot = &pbox_domain->slots[index];
  uint32_t generation = box->generation + 1, next_free = box->next_free;
  uint32_t seq = slot->seq | 1, me = this_thread();
  let_go(0);
  clear(box, offsetof(struct box, recent)); /* the ring counts what is in it */
  box->generation = generation;
  store(box->next_free, next_free);
  int psid = psid_of(box);
  store(box->binding, bound_to(psid, me)); /* it was 0: no claim can have come in between */

  store(slot->seq, seq);
  clear(&slot->state, offsetof(struct pbox_page_slot, ended) - offsetof(struct pbox_page_slot, state));
  store(slot->pid, pbox_domain->pid);
  store(slot->start_ticks, pbox_domain->start_ticks);
  store(slot->tid, me);
  store(slot->metric, (uint32_t)rule.metric);
  store_double(&slot->goal, rule.isolation_level / 100.0);
  store_double(&slot->level, -1);
  store(slot->state, PBOX_SLOT_STARTED);
  store(slot->psid, (uint32_t)psid);
  end_write(slot);
  show_use_of(index);
  pbox_self.box = box;
  pbox_self.slot = slot;
  return psid;
}

int release_pbox(int psid) {
  int result = take(psid);
  if (result) return result;
  struct box *box = pbox_self.box;
  struct pbox_page_slot *slot = pbox_self.slot;
  if (box->filed) directory_remove(box->filed_under, psid);
  if (box->active) end_activity(box, slot, now_ns());
  pbox_self.box = NULL;
  return retire(index_of(box), (uint32_t)psid) ? 0 : -ENOENT;
}

void begin_activity(struct box *box, struct pbox_page_slot *slot) {
  uint64_t now = now_ns();
  box->active = true;
  store(box->paused_from_ns, box->shared && load(slot->not_before_ns) > now ? now : 0);
  begin_write(slot);
  store(slot->state, PBOX_SLOT_ACTIVE);
  store(slot->activity_start_ns, now);
  end_write(slot);
}

void activate_own(struct box *box, struct pbox_page_slot *slot) {
  if (box->active) { /* its freeze is missing */
    note_mistake(slot);
    end_activity(box, slot, now_ns());
  }
  settle(box, slot);
  begin_activity(box, slot);
}

int activate_pbox(int psid) {
  int result = take(psid);
  if (!result) activate_own(pbox_self.box, pbox_self.slot);
  return result;
}

int freeze_own(struct box *box, struct pbox_page_slot *slot) {
  if (!box->active) {
    note_mistake(slot);
    return -EALREADY;
  }
  end_activity(box, slot, now_ns());
  settle(box, slot);
  return 0;
}

int freeze_pbox(int psid) {
  int result = take(psid);
  return result ? result : freeze_own(pbox_self.box, pbox_self.slot);
}

int unbind_pbox(size_t k, enum pbox_unbind_flags flags) {
  struct box *box = own();
  if (flags != PBOX_EAGER && flags != PBOX_LAZY) return -EINVAL;
  if (!box) return -ENOENT;
  int psid = psid_of(box);
  if (!box->filed || box->filed_under != k) {
    int result = directory_put(k, psid);
    if (result) return result;
    if (box->filed) directory_remove(box->filed_under, psid);
    box->filed = true;
    box->filed_under = k;
  }
  pbox_self.lazy_box = flags == PBOX_LAZY ? box : NULL;
  pbox_self.lazy_key = k;
  pbox_self.lazy_psid = psid;
  let_go(flags == PBOX_LAZY ? this_thread() | LAZY : 0);
  return psid;
}

/* The pBox that this thread detached last, if it is filed under k and nobody took it meanwhile:
   neither the directory nor its lock is needed then. */
static bool take_back(size_t k) {
  struct box *box = pbox_self.lazy_box;
  if (!box || pbox_self.lazy_key != k || pbox_self.box || pbox_self.epoch != load(pbox_epoch))
    return false;
  int psid = pbox_self.lazy_psid;
  uint64_t lazy = bound_to(psid, this_thread() | LAZY);
  pbox_self.lazy_box = NULL;
  if (!claim(box->binding, &lazy, bound_to(psid, this_thread()))) return false;
  pbox_self.box = box;
  pbox_self.slot = slot_of(box);
  return true;
}

int bind_pbox(size_t k, enum pbox_bind_flags flags) {
  if (flags != PBOX_DEDICATED && flags != PBOX_SHARED) return -EINVAL;
  if (!take_back(k)) {
    int result = take(directory_get(k));
    if (result) return result;
  }
  pbox_self.box->shared = flags == PBOX_SHARED;
  return psid_of(pbox_self.box);
}

int64_t penalty_pbox(int psid) {
  struct box *box = box_of(psid);
  if (!box) return -ENOENT;
  uint64_t until = load(slot_of(box)->not_before_ns), now = until ? now_ns() : 0;
  return until > now ? (int64_t)(until - now) : 0;
}

static int name(char *field, const char *text) {
  if (!text) return -EINVAL;
  size_t length = strnlen(text, PBOX_PAGE_NAME_BYTES - 1);
  for (size_t i = 0; i < PBOX_PAGE_NAME_BYTES; i++) store(field[i], i < length ? text[i] : 0);
  return 0;
}

int name_pbox(int psid, const char *text) {
  struct box *box = box_of(psid);
  return box ? name(slot_of(box)->name, text) : -ENOENT;
}

int name_pbox_key(size_t key, const char *text) {
  if (!key) return -EINVAL;
  int result = domain_or_default();
  if (result) return result;
  uint32_t place = place_for(key);
  return place == NOWHERE ? -ENOSPC : name(pbox_domain->keys[place].name, text);
}

int stat_pbox(int psid, struct pbox_stats *stats) {
  struct box *box = box_of(psid);
  if (!stats) return -EINVAL;
  if (!box) return -ENOENT;
  const struct pbox_page_slot *slot = slot_of(box);
  for (int i = 0; i < MOST_LOOKS; i++) {
    uint32_t seq = load(slot->seq);
    *stats = (struct pbox_stats){
        .activities = load(slot->activities),
        .executed_ns = load(slot->executed_ns),
        .deferred_ns = load(slot->deferred_ns),
        .times_victim = load(slot->times_victim),
        .times_noisy = load(slot->times_noisy),
        .penalties = load(slot->penalties),
        .penalty_ns = load(slot->penalty_ns),
        .events_ignored = load(slot->events_ignored),
    };
    stats->level = load_double(&slot->level);
    if (load(slot->psid) != (uint32_t)psid) return -ENOENT;
    if (seq % 2 == 0 && load(slot->seq) == seq) return 0;
    sched_yield(); /* a writer is done within a microsecond, once it has a processor */
  }
  return -EAGAIN; /* it has stopped or died within, in another process */
}
