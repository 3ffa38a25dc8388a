/*
 * pbox.h - performance isolation within an application, at user level.
 *
 * PROBLEM
 *   One activity of a program (a request, a connection, a background task) makes another wait
 *   for something that no kernel knows: a lock, a ticket, a block of a buffer pool, a place in a
 *   worker queue.  The hardware is idle meanwhile.
 *
 * WHAT IT DOES
 *   The program says where an activity begins and ends and tells four events of each such
 *   virtual resource.  The library sums up the deferring time T_d of each activity, compares the
 *   interference level T_f = T_d / (T_e - T_d) with the goal, finds who is noisy, and delays it
 *   once it holds nothing.  What it measures is shown in a page of shared memory (pbox_page.h).
 *
 * SOURCE
 *   Hu, Huang, Huang: Pushing Performance Isolation Boundaries into Application with pBox,
 *   SOSP 2023.  The names of the functions are those of its Figure 7.  The paper's manager is a
 *   part of the kernel, which a tenant cannot patch; this one is in the program's own address
 *   space or in memory that several processes share.  Departures: docs/adr/0025 and at each spot.
 *
 * USE
 *   IsolationRule rule = {PBOX_RELATIVE, PBOX_AVERAGE, 50};
 *   int psid = create_pbox(rule);             // once a connection; bound to this thread
 *   while (next_request()) {
 *     activate_pbox(psid);
 *     update_pbox((size_t)&tickets, PBOX_PREPARE);
 *     wait_for_ticket();
 *     update_pbox((size_t)&tickets, PBOX_ENTER);
 *     update_pbox((size_t)&tickets, PBOX_HOLD);
 *     work();
 *     give_back_ticket();
 *     update_pbox((size_t)&tickets, PBOX_UNHOLD); // may sleep: see PENALTIES
 *     freeze_pbox(psid);
 *   }
 *   release_pbox(psid);
 *
 * PENALTIES
 *   A pBox that was found noisy is delayed, in its own thread, at the end of an update_pbox(),
 *   freeze_pbox() or activate_pbox() after which it holds no traced resource: there was an UNHOLD
 *   for each HOLD.  So who loses one is never delayed again (PBOX_HOLDS_END says otherwise).  A
 *   thread must not hold an untraced one there that others wait for.  A pBox on a shared thread
 *   never sleeps; the program asks penalty_pbox() before it lets the activity run, and puts it
 *   back if need be.  Until then it is neither executing nor deferred.
 *   A domain opened with PBOX_MEASURE never delays anything.
 *
 * THREADS, SIGNALS, FORKS
 *   All functions may be called from any thread at once.  One pBox belongs to one thread at a
 *   time; an event path takes no lock, and makes no system call before somebody is found noisy.  No
 *   function may be called from a signal handler.  A child of fork() has none of its parent's
 *   pBoxes, and its domain only if that is shared between processes (struct pbox_options, domain).
 *   A psid is good in the process that made it.
 *
 * MISTAKES
 *   Missing, repeated and wrong calls are ignored or repaired, counted, and never crash: an ENTER
 *   without PREPARE, a HOLD that ends a wait whose ENTER is missing, an UNHOLD of what is not
 *   held, an old psid, an activity that was never frozen (the paper's section 6.8).
 *
 * RETURN VALUES
 *   0 or a positive number when done; otherwise a negative errno value, and nothing has changed:
 *   -EINVAL an argument is out of range, -ENOENT no such pBox (or none is bound), -EBUSY the pBox
 *   is bound to another thread, -EALREADY the call is out of order and was ignored, -ENOSPC a
 *   table is full, -EAGAIN another process has stopped while it wrote what was to be read, or what
 *   the system answered when memory was mapped.
 */
#ifndef PBOX_H
#define PBOX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PBOX_VERSION "1.0.0"
#define PBOX_API __attribute__((visibility("default")))

/* What an isolation level is relative to.  RELATIVE: to the same activity without deferral. */
enum pbox_rule_type { PBOX_RELATIVE = 0 };

/* Which figure of a pBox's recent activities is held against its goal (section 4.3.1). */
enum pbox_metric {
  PBOX_AVERAGE = 0, /* mean T_d / (mean T_e - mean T_d) */
  PBOX_TAIL = 1,    /* the 95th percentile of T_f */
  PBOX_MAX = 2      /* the largest T_f */
};

/* Interference up to isolation_level percent is tolerated: 50 means T_f <= 0.5.  1 to 100000. */
typedef struct IsolationRule {
  enum pbox_rule_type type;
  enum pbox_metric metric;
  unsigned int isolation_level;
} IsolationRule;

/* The four state events of a virtual resource (Table 1). */
enum pbox_event {
  PBOX_PREPARE = 0, /* the pBox is deferred by the resource from now on */
  PBOX_ENTER = 1,   /* it no longer is */
  PBOX_HOLD = 2,    /* it holds the resource, or one more unit or part of it */
  PBOX_UNHOLD = 3   /* it has released it, or a unit of it: one for each HOLD */
};

/* For bind_pbox(). */
enum pbox_bind_flags {
  PBOX_DEDICATED = 0, /* the thread serves this pBox alone: a penalty is a sleep */
  PBOX_SHARED = 1     /* it serves others too: a penalty is an instant to ask for */
};

/* For unbind_pbox(). */
enum pbox_unbind_flags {
  PBOX_EAGER = 0,
  PBOX_LAZY = 1 /* likely to be bound to the same thread again: then bind_pbox() is cheaper */
};

enum pbox_mode {
  PBOX_MITIGATE = 0,
  PBOX_MEASURE = 1 /* T_d, T_f, victims and noisy ones are found and shown; nobody is delayed */
};

/* What an activity has not given back when it ends. */
enum pbox_holds {
  PBOX_HOLDS_STAY = 0, /* stays held: a transaction spans several activities */
  PBOX_HOLDS_END = 1   /* was given back, and its UNHOLD is missing: no activity leaves anything */
};

/* For open_pbox().  Zero or NULL means the default, so `struct pbox_options o = {0}` will do. */
struct pbox_options {
  size_t size;             /* sizeof(struct pbox_options), or 0 for this version's */
  enum pbox_mode mode;     /* default PBOX_MITIGATE */
  const char *domain;      /* name of a domain shared by processes; NULL: this process alone */
  const char *page;        /* path of the statistics page; "" for none; NULL: see open_pbox() */
  unsigned int max_pboxes; /* default 1024, at most 65535 */
  unsigned int max_keys;   /* default 1024, rounded up to a power of two, at most 65536 */
  uint64_t penalty_min_ns; /* default 50 us */
  uint64_t penalty_max_ns; /* default 100 ms, at most an hour */
  enum pbox_holds holds;   /* default PBOX_HOLDS_STAY; of this process */
};

/* A copy of what the page says of a pBox, for programs and tests. */
struct pbox_stats {
  uint64_t activities, executed_ns, deferred_ns; /* finished activities: T_e and T_d */
  uint64_t times_victim, times_noisy, penalties, penalty_ns, events_ignored;
  double level; /* T_f by the rule's metric over recent activities, -1 before the first */
};

/*
 * Opens this process's domain.  Needed only for options: the first create_pbox() opens one by
 * itself, with the defaults.  -EALREADY when one is open.
 *
 * The page's path: options->page, or else $PBOX_PAGE (in both, %p stands for the process id), or
 * else /dev/shm/pbox-PID.page.  It is made with mode 0640 and removed by close_pbox() or at exit.
 * Where no page can be made, the library works on without one, and pbox_page_path() is NULL.
 * That of a shared domain is /dev/shm/pbox-DOMAIN.page, for its processes must find it, and a
 * domain without one is not opened.  $PBOX_MODE (mitigate, measure) overrides the mode.
 *
 * A shared domain belongs to one user: its processes have the same effective user id, name it
 * alike, and use keys that mean the same in all of them (no addresses of private memory).  Its
 * first process decides the sizes and the mode.
 */
PBOX_API int open_pbox(const struct pbox_options *options);

/* Ends the domain.  No thread may be in the library or come in meanwhile.  Old psids are void. */
PBOX_API void close_pbox(void);

/* Path of this process's page, or NULL.  Valid until close_pbox(). */
PBOX_API const char *pbox_page_path(void);

/* Makes a pBox and binds it to the calling thread, in the place of the one that was.  A psid > 0. */
PBOX_API int create_pbox(IsolationRule rule);

/* Ends a pBox, whatever state it is in.  -EBUSY while it is bound to another thread. */
PBOX_API int release_pbox(int psid);

/* Begins an activity and makes the pBox the calling thread's.  One in progress ends first. */
PBOX_API int activate_pbox(int psid);

/* Ends the activity.  What is held stays held: a transaction may span several. */
PBOX_API int freeze_pbox(int psid);

/* Tells an event of the resource `key` (any number but 0, often an address) for the thread's pBox. */
PBOX_API int update_pbox(size_t key, enum pbox_event event);

/*
 * The same for a pBox that is bound to no other thread, for programs whose activities are
 * coroutines.  It is treated as on a shared thread from then on.  Calls for one pBox must not
 * overlap.
 */
PBOX_API int update_pbox_of(int psid, size_t key, enum pbox_event event);

/*
 * Detaches the thread's pBox and files it under k, which is no resource but whatever the program
 * finds it by again (a connection).  Waits in progress go on.  Its psid.
 */
PBOX_API int unbind_pbox(size_t k, enum pbox_unbind_flags flags);

/* Binds the pBox filed under k to the calling thread, in the place of the one that was.  Its psid. */
PBOX_API int bind_pbox(size_t k, enum pbox_bind_flags flags);

/* Nanoseconds for which the pBox is not to run; 0 when it may. */
PBOX_API int64_t penalty_pbox(int psid);

/* Names for people who read the page: at most 23 bytes are kept. */
PBOX_API int name_pbox(int psid, const char *name);
PBOX_API int name_pbox_key(size_t key, const char *name);

/* Copies a pBox's figures. */
PBOX_API int stat_pbox(int psid, struct pbox_stats *stats);

#ifdef PBOX_PAPER_NAMES /* the paper's spelling, for code written against it */
typedef enum pbox_event event_type;
#define RELATIVE PBOX_RELATIVE
#define PREPARE PBOX_PREPARE
#define ENTER PBOX_ENTER
#define HOLD PBOX_HOLD
#define UNHOLD PBOX_UNHOLD
#endif

#ifdef __cplusplus
}
#endif

#endif /* PBOX_H */
