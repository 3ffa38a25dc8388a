/*
 * pbox_page.h - the statistics page: what a program with pBoxes shows of itself.
 *
 * One file of shared memory per domain, written by the program, read by anybody who may read
 * the file.  docs/pbox-page.md is the contract (how to find, check and read a page); this file
 * is the layout.  Every field has its natural alignment and the machine's byte order, so the
 * structs have no hidden padding; the assertions at the end hold both files to the same numbers.
 *
 * A reader takes offsets, counts and strides from the header, never from this file: a later
 * minor version may append fields to a struct (a larger stride), and only a new major version
 * may move or change one.
 */
#ifndef PBOX_PAGE_H
#define PBOX_PAGE_H

#include <stddef.h>
#include <stdint.h>

#define PBOX_PAGE_MAGIC "PBOXPAGE" /* eight bytes, no terminator */
#define PBOX_PAGE_MAJOR 1
#define PBOX_PAGE_MINOR 1
#define PBOX_PAGE_BYTE_ORDER 0x01020304u
#define PBOX_PAGE_NAME_BYTES 24

/* header.state */
#define PBOX_PAGE_BUILDING 0u /* not to be read yet */
#define PBOX_PAGE_LIVE 1u
#define PBOX_PAGE_CLOSED 2u /* the program has ended it in good order */

/* header.flags */
#define PBOX_PAGE_MITIGATES 1u /* penalties are taken; without it the program only measures */
#define PBOX_PAGE_SHIM 2u      /* written by the LD_PRELOAD shim: a pBox is a thread */
#define PBOX_PAGE_PROCESSES 4u /* several processes write: each slot has its own pid */

/* slot.state */
#define PBOX_SLOT_FREE 0u
#define PBOX_SLOT_STARTED 1u /* created, no activity yet */
#define PBOX_SLOT_ACTIVE 2u
#define PBOX_SLOT_FROZEN 3u

/* key.kind: what sort of thing a key names */
#define PBOX_KEY_PLAIN 0u
#define PBOX_KEY_MUTEX 1u
#define PBOX_KEY_RWLOCK 2u
#define PBOX_KEY_CONDITION 3u

/* At offset 0. */
struct pbox_page_header {
  char magic[8];            /*   0  PBOX_PAGE_MAGIC; written last */
  uint16_t major;           /*   8 */
  uint16_t minor;           /*  10 */
  uint32_t byte_order;      /*  12  PBOX_PAGE_BYTE_ORDER as the writer stores it */
  uint32_t header_bytes;    /*  16  size of this struct */
  uint32_t state;           /*  20  PBOX_PAGE_BUILDING, _LIVE, _CLOSED */
  uint64_t page_bytes;      /*  24  size of the file */
  uint32_t pid;             /*  32  of the process that made the page, in its own namespace */
  uint32_t uid;             /*  36  effective user of that process */
  uint64_t start_ticks;     /*  40  its start, field 22 of /proc/PID/stat; 0 if unknown */
  uint64_t created_unix_ns; /*  48  CLOCK_REALTIME at creation */
  uint32_t flags;           /*  56  PBOX_PAGE_MITIGATES, _SHIM, _PROCESSES */
  uint32_t clock_id;        /*  60  clock of all *_ns instants: 1, CLOCK_MONOTONIC */
  uint32_t slot_offset;     /*  64  first pBox slot, bytes from the start of the file */
  uint32_t slot_count;      /*  68 */
  uint32_t slot_stride;     /*  72  bytes from one slot to the next */
  uint32_t slot_used;       /*  76  slots at and after this index have never been used */
  uint32_t key_offset;      /*  80  first key, likewise */
  uint32_t key_count;       /*  84 */
  uint32_t key_stride;      /*  88 */
  uint32_t reserved;        /*  92 */
  uint64_t slots_refused;   /*  96  creations refused because all slots were taken */
  uint64_t keys_refused;    /* 104  events whose key found no room: counted in slots, not in keys */
  char program[PBOX_PAGE_NAME_BYTES]; /* 112  name of the program, NUL-terminated */
  uint64_t reserved_tail[7];          /* 136  to 192 */
};

/* What pBoxes did that have ended: the fields of the same names, summed up. */
struct pbox_page_ended {
  uint64_t pboxes;       /*   0  their number */
  uint64_t activities;   /*   8 */
  uint64_t executed_ns;  /*  16 */
  uint64_t deferred_ns;  /*  24 */
  uint64_t times_victim; /*  32 */
  uint64_t times_noisy;  /*  40 */
  uint64_t penalties;    /*  48 */
  uint64_t penalty_ns;   /*  56  to 64 */
};

/*
 * A place for one pBox at a time, and the sums over those that have had it and ended: what it says
 * of both together never falls.  Written by the thread that the pBox is bound to, one at a time,
 * under `seq`: even when at rest, odd while the fields from `psid` on are being changed.
 */
struct pbox_page_slot {
  uint32_t seq;                  /*   0 */
  uint32_t psid;                 /*   4  what create_pbox() returned; 0 when free */
  uint32_t pid;                  /*   8  of the process that created it */
  uint32_t tid;                  /*  12  of the thread it was last bound to; 0 before that */
  uint64_t start_ticks;          /*  16  of the process, as in the header */
  uint32_t state;                /*  24  PBOX_SLOT_... */
  uint32_t metric;               /*  28  of the rule: 0 average, 1 tail, 2 max */
  double goal;                   /*  32  lambda, a fraction: 0.5 tolerates 50 % */
  double level;                  /*  40  T_f by the metric over recent activities; -1 before one */
  uint64_t activities;           /*  48  finished since the slot's creation */
  uint64_t executed_ns;          /*  56  T_e, finished activities, penalties left out */
  uint64_t deferred_ns;          /*  64  T_d, finished activities */
  uint64_t activity_start_ns;    /*  72  of the activity in progress; 0 without one */
  uint64_t activity_deferred_ns; /*  80  t_d of it, finished waits */
  uint64_t wait_since_ns;        /*  88  begin of the earliest wait in progress; 0 without one */
  uint64_t wait_key;             /*  96  key of that wait */
  uint64_t times_victim;         /* 104  times it was found to be deferred beyond its goal */
  uint64_t times_noisy;          /* 112  times it was found to be the cause */
  uint64_t penalties;            /* 120  taken */
  uint64_t penalty_ns;           /* 128  their lengths, summed up */
  uint64_t not_before_ns;        /* 136  shared threads: it may not run before this instant */
  uint64_t events_ignored;       /* 144  missing or wrong calls: an ENTER without PREPARE, ... */
  char name[PBOX_PAGE_NAME_BYTES]; /* 152  given by name_pbox(), NUL-terminated */
  uint64_t reserved[2];            /* 176  to 192 */
  struct pbox_page_ended ended;    /* 192  to 256; since 1.1 */
};

/*
 * One virtual resource, at a place that its key's hash decides: a reader goes through all of
 * them and skips those whose key is 0.  Each field alone is right at every moment; the sums only
 * grow until the place is given to another key.
 */
struct pbox_page_key {
  uint64_t key;         /*  0  0 when free */
  uint64_t deferred_ns; /*  8  time that pBoxes were deferred by it, finished waits */
  uint64_t waits;       /* 16  their number */
  uint64_t noisy;       /* 24  times its holder was found to be noisy */
  uint32_t kind;        /* 32  PBOX_KEY_... */
  uint32_t not_counted; /* 36  1: waiting for it is idleness, and not in any slot's T_d */
  char name[PBOX_PAGE_NAME_BYTES]; /* 40  given by name_pbox_key(), NUL-terminated; to 64 */
};

#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
_Static_assert(sizeof(struct pbox_page_header) == 192, "layout of the page");
_Static_assert(offsetof(struct pbox_page_header, slot_offset) == 64, "layout of the page");
_Static_assert(offsetof(struct pbox_page_header, program) == 112, "layout of the page");
_Static_assert(sizeof(struct pbox_page_slot) == 256, "layout of the page");
_Static_assert(offsetof(struct pbox_page_slot, goal) == 32, "layout of the page");
_Static_assert(offsetof(struct pbox_page_slot, wait_since_ns) == 88, "layout of the page");
_Static_assert(offsetof(struct pbox_page_slot, name) == 152, "layout of the page");
_Static_assert(offsetof(struct pbox_page_slot, ended) == 192, "layout of the page");
_Static_assert(sizeof(struct pbox_page_key) == 64, "layout of the page");
_Static_assert(offsetof(struct pbox_page_key, name) == 40, "layout of the page");
#endif

#endif /* PBOX_PAGE_H */
