/*
 * internal.h - what the library's files share.
 *
 * A domain is two regions with the same number of slots: the page (pbox_page.h, public) and the
 * arena (below, private), both reachable by indices alone, so that processes may map them at
 * different addresses.  There is no lock: a field is written by the thread that its pBox is bound
 * to, or, where others write too, by one atomic operation.  Every access that another thread may
 * see goes through load(), store() and add(), so each is a C11 atomic to compiler and sanitizers.
 */
#ifndef PBOX_INTERNAL_H
#define PBOX_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "pbox.h"
#include "pbox_page.h"

#pragma GCC visibility push(hidden) /* so that nothing here is looked for in other libraries */

#define COLD __attribute__((cold)) /* what is rare, out of the way of what is not */
#define NOINLINE __attribute__((noinline))

#define load(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)
#define store(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELEASE)
#define add(field, value) __atomic_fetch_add(&(field), (value), __ATOMIC_RELAXED)
#define swap(field, value) __atomic_exchange_n(&(field), (value), __ATOMIC_ACQ_REL)
#define claim(field, expected, value)                                                    \
  __atomic_compare_exchange_n(&(field), (expected), (value), false, __ATOMIC_ACQ_REL, \
                              __ATOMIC_ACQUIRE)

static inline double load_double(const double *from) {
  double value;
  __atomic_load(from, &value, __ATOMIC_ACQUIRE);
  return value;
}
static inline void store_double(double *to, double value) {
  __atomic_store(to, &value, __ATOMIC_RELEASE);
}

enum {
  LINE = 64,      /* bytes of a cache line */
  WAITS = 4,      /* resources that one pBox waits for at once: one, or few when events nest */
  HOLDS = 16,     /* resources that one pBox holds at once; of more, only the number is known */
  SEATS = 16,     /* waiting pBoxes that a resource knows, one cache line of them */
  WAYS = 8,       /* keys with one hash: one cache line of them */
  RECENT = 64,    /* activities that "recent" means: 64 is the least of which a 95th percentile
                     (rank 61) leaves out more than the largest two */
  BLAMED = 8,     /* neighbours that a pBox remembers as the cause of its waits */
  REMEMBERED = 8, /* resources for which a pBox remembers its last penalty */
};

/* The memory of a penalty that is older belongs to something else: an interference of yesterday must
   not decide on today's. */
#define FORGET_NS 10000000000ull

/* Who has waited for longer waits no more: the program has left by a way that tells no ENTER.  Longer
   than programs let a request wait for a lock (innodb_lock_wait_timeout is 50 s by default). */
#define ABANDONED_NS 60000000000ull

/* Where the paper acts on a pBox's average: at 90 % of its goal (section 4.3.1). */
#define NEAR_GOAL 0.9

struct wait {
  uint64_t key; /* 0: free */
  uint64_t since_ns;
  uint32_t place, seat; /* in the key table; NOWHERE without one */
};

struct hold {
  uint64_t key, since_ns; /* from when on nobody has been told of it: its last UNHOLD, or its HOLD */
  uint32_t units;         /* HOLDs less UNHOLDs */
};

/* How long a neighbour has deferred this pBox: in this activity, and in about RECENT before it. */
struct blame {
  uint64_t now_ns, past_ns, key; /* the resource that it held last */
  uint32_t psid;                 /* 0: free; one that has ended leaves its slot to others */
  bool sentenced;                /* within this activity */
};

/* The last penalty of a pBox for a resource (section 4.4.2): p_i, s(i) and the score. */
struct penalty {
  uint64_t key, length_ns, at_ns;
  double ratio;
  unsigned score;
};

/* What a victim asks of the pBox that it blames, at the end of its activity. */
struct complaint {
  uint64_t key; /* 0: none; swapped out by the noisy pBox */
  uint64_t deferred_ns;
  double ratio, goal;
  uint32_t psid; /* whom it is meant for: the slot may be another's by now */
};

/* T_e and T_d of an activity. */
struct activity {
  uint64_t executed_ns, deferred_ns;
};

/* All that an activity without deferral looks at is in the first cache line: between two of them a
   server's other work has driven most of the box out of the processor's first cache. */
struct box {
  /* the thread's own; others read what is stored atomically */
  _Alignas(LINE) uint64_t pending_ns; /* penalty that waits for the pBox to hold nothing */
  uint64_t paused_from_ns; /* a penalty on a shared thread: not yet taken out of T_e from then on */
  uint64_t recent_executed_ns, recent_deferred_ns; /* sums over the ring */
  unsigned n_waits, n_holds, n_recent, at_recent;
  unsigned more_holds; /* that found no room in holds */
  bool active, shared, filed;
  /* written by others */
  bool blames; /* somebody has been entered in blamed */
  struct complaint complaint;
  struct blame blamed[BLAMED];
  uint64_t binding; /* psid << 32 | thread that it is bound to: 0 none, with LAZY it may be taken */
  uint32_t next_free, generation; /* of the psid, so that an old one is known as such */
  /* the thread's own */
  struct wait waits[WAITS]; /* others read them */
  uint64_t filed_under;
  struct hold holds[HOLDS];
  struct penalty remembered[REMEMBERED];
  _Alignas(LINE) struct activity recent[RECENT]; /* a ring */
  float level[RECENT]; /* of each, where the metric is not the average */
};
_Static_assert(offsetof(struct box, complaint.key) + sizeof(uint64_t) <= LINE, "the first line");

struct arena {
  uint64_t free_head; /* tag << 32 | index + 1 of a free box: a stack that no lock guards */
  uint32_t boxes, keys;
  uint64_t penalty_min_ns, penalty_max_ns;
  uint32_t mode;
  uint32_t ready;
};

struct domain {
  struct pbox_page_header *page;
  struct pbox_page_slot *slots;
  struct pbox_page_key *keys;
  struct arena *arena;
  struct box *boxes;
  uint64_t *ways;  /* the keys themselves, WAYS to a cache line */
  uint32_t *seats; /* SEATS for each key: index + 1 of a waiting box */
  uint32_t key_mask, n_boxes;
  bool mitigates, processes, holds_end;
  uint32_t pid;
  uint64_t start_ticks;
};

#define ARENA_VERSION 3u /* of struct arena and struct box, which the processes of a domain share */
#define NOWHERE UINT32_MAX
#define LAZY 0x80000000u

/* This process's domain, or NULL; a new epoch voids what threads remember of an older one. */
extern struct domain *pbox_domain;
extern unsigned pbox_epoch;

/* What a thread remembers. */
struct thread {
  struct box *box; /* bound to it, or NULL */
  struct pbox_page_slot *slot;
  unsigned epoch;
  uint32_t tid;
  struct box *lazy_box; /* last detached with PBOX_LAZY, and what it is filed under */
  uint64_t lazy_key;
  int lazy_psid;
};
extern _Thread_local struct thread pbox_self __attribute__((tls_model("initial-exec")));

static inline uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Of a binding: whose it is, and the thread. */
static inline uint64_t bound_to(int psid, uint32_t thread) {
  return (uint64_t)(uint32_t)psid << 32 | thread;
}
static inline uint32_t thread_of(uint64_t binding) { return (uint32_t)binding; }

static inline uint32_t index_of(const struct box *box) {
  return (uint32_t)(box - pbox_domain->boxes);
}

/* Writers of a slot: its other fields' release stores come after the odd number. */
static inline void begin_write(struct pbox_page_slot *slot) {
  __atomic_store_n(&slot->seq, slot->seq + 1, __ATOMIC_RELAXED);
}
static inline void end_write(struct pbox_page_slot *slot) { store(slot->seq, slot->seq + 1); }

/* pbox.c: activate_pbox() and freeze_pbox() of the pBox that this thread is known to have */
void activate_own(struct box *box, struct pbox_page_slot *slot);
int freeze_own(struct box *box, struct pbox_page_slot *slot);
void begin_activity(struct box *box, struct pbox_page_slot *slot);

/* domain.c; what create_pbox() opens a domain with, and flags that its page shows */
extern const struct pbox_options *pbox_default_options;
extern uint32_t pbox_page_flags;
int domain_or_default(void);
struct box *box_of(int psid);
int psid_of(const struct box *box);
uint32_t this_thread(void);
bool process_lives(uint32_t pid, uint64_t start_ticks); /* and is the same one; 0: unknown */
bool thread_lives(uint32_t pid, uint32_t tid);

/* keys.c: where the competitors of a key are found */
uint32_t place_of(uint64_t key);      /* NOWHERE when it is not known */
uint32_t place_for(uint64_t key);     /* makes room for it; NOWHERE when there is none */
bool seats_taken(uint32_t place);
uint32_t take_seat(uint32_t place, uint32_t box_index);
void leave_seat(uint32_t place, uint32_t seat, uint32_t box_index);

/* pool.c: which boxes are free */
void pool_fill(struct domain *domain);
uint32_t pool_take(void); /* NOWHERE when all are taken */
void pool_give(uint32_t index);
bool retire(uint32_t index, uint32_t psid); /* ends the pBox; false when somebody else has */
bool waits_in_vain(uint32_t index); /* its process or thread has ended, and its waits are over */
void reap_all(void);                /* those of processes that are no more */
void reap_own(void);

/* events.c */
int tell(struct box *box, struct pbox_page_slot *slot, uint64_t key, enum pbox_event event);
void charge_hold(struct box *box, uint64_t key); /* an UNHOLD in parts: whom it has kept waiting, */
void drop_hold(struct box *box, uint64_t key);   /* a unit is given back; then settle() */
COLD void drop_waits(struct box *box, struct pbox_page_slot *slot);
COLD void note_mistake(struct pbox_page_slot *slot);

/* detect.c: Algorithm 1 */
double level_of(double deferred_ns, double executed_ns); /* T_f, eq. of section 4.3.1 */
double recent_level(const struct box *box, enum pbox_metric metric);
void detect(struct box *noisy, uint64_t key, uint32_t place, uint64_t held_since_ns, uint64_t now);
void end_activity(struct box *box, struct pbox_page_slot *slot, uint64_t now);
COLD void forget_blame(struct box *box);

/* penalty.c: section 4.4.2 */
struct effect {
  double ratio;         /* s = T_d / T_e of the victim */
  double goal;          /* its lambda */
  uint64_t deferred_ns; /* t_d of the victim */
};
uint64_t first_penalty(uint64_t victim_deferred_ns, uint64_t noisy_executed_ns);
double penalty_step(struct penalty *last, const struct effect *effect);
void sentence(struct box *noisy, uint64_t key, const struct effect *effect, uint64_t now);
COLD void serve_penalty(struct box *box, struct pbox_page_slot *slot);
uint64_t paused_ns(const struct box *box, const struct pbox_page_slot *slot, uint64_t now);
COLD void leave_out_pause(struct box *box, struct pbox_page_slot *slot, uint64_t now);

/* A penalty is taken, if one is due. */
static inline void settle(struct box *box, struct pbox_page_slot *slot) {
  if (box->pending_ns || load(box->complaint.key)) serve_penalty(box, slot);
}

/* directory.c: pBoxes by what the program files them under; of this process alone */
int directory_put(uint64_t k, int psid);
int directory_get(uint64_t k);
void directory_remove(uint64_t k, int psid);
void directory_clear(void);

#pragma GCC visibility pop
#endif
