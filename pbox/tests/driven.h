/* driven.h - several pBoxes played by one thread, so that nothing depends on who runs when. */
#ifndef DRIVEN_H
#define DRIVEN_H

#include "check.h"
#include "clock.h"
#include "internal.h"

enum { KEY = 42, OTHER = 43 };

static inline void open_again(struct pbox_options options) {
  options.page = "";
  close_pbox();
  CHECK(open_pbox(&options) == 0);
}

static inline int begin(void) {
  int psid = create_pbox(half);
  CHECK(psid > 0 && activate_pbox(psid) == 0);
  return psid;
}

static inline void told(int psid, size_t key, enum pbox_event event) {
  CHECK(update_pbox_of(psid, key, event) == 0);
}

/* An activity that has run for a while and now waits. */
static inline int begin_to_wait(size_t key) {
  int psid = begin();
  pass_ms(5);
  told(psid, key, PBOX_PREPARE);
  return psid;
}

static inline struct pbox_page_slot *slot_of(int psid) {
  return &pbox_domain->slots[index_of(box_of(psid))];
}

#endif
