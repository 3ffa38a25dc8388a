/*
 * events.c - the hot path: what the four state events change (section 4.3.2).
 *
 * Nothing here takes a lock or makes a system call; the clock is read without one.  What is
 * repaired or ignored of missing and wrong calls (section 6.8) stands at each spot.
 */
#include <errno.h>

#include "internal.h"

void note_mistake(struct pbox_page_slot *slot) { add(slot->events_ignored, 1); }

static struct wait *find_wait(struct box *box, uint64_t key) {
  for (int i = 0; i < WAITS; i++)
    if (box->waits[i].key == key) return &box->waits[i];
  return NULL;
}

/* What readers see: the earliest wait in progress. */
static void show_wait(const struct box *box, struct pbox_page_slot *slot) {
  const struct wait *first = NULL;
  for (int i = 0; box->n_waits && i < WAITS; i++) {
    const struct wait *wait = &box->waits[i];
    if (wait->key && (!first || wait->since_ns < first->since_ns)) first = wait;
  }
  store(slot->wait_since_ns, first ? first->since_ns : 0);
  store(slot->wait_key, first ? first->key : 0);
}

static struct hold *find_hold(struct box *box, uint64_t key) {
  for (unsigned i = 0; i < box->n_holds; i++)
    if (box->holds[i].key == key) return &box->holds[i];
  return NULL;
}

static void leave(struct box *box, struct wait *wait) {
  if (wait->place != NOWHERE) leave_seat(wait->place, wait->seat, index_of(box));
  store(wait->key, 0);
  box->n_waits--;
}

static int prepare(struct box *box, struct pbox_page_slot *slot, uint64_t key) {
  struct wait *wait = box->n_waits ? find_wait(box, key) : NULL;
  if (wait) { /* its ENTER is missing: how long that wait was, nobody knows */
    note_mistake(slot);
    leave(box, wait);
  } else if (!(wait = find_wait(box, 0))) {
    note_mistake(slot);
    return -ENOSPC;
  }
  uint64_t now = now_ns(), not_before = box->shared ? load(slot->not_before_ns) : 0;
  store(wait->since_ns, not_before > now ? not_before : now); /* until then its penalty defers it */
  wait->place = place_for(key);
  store(wait->key, key);
  wait->seat = wait->place == NOWHERE ? NOWHERE : take_seat(wait->place, index_of(box));
  box->n_waits++;
  begin_write(slot);
  show_wait(box, slot);
  end_write(slot);
  return 0;
}

static int enter(struct box *box, struct pbox_page_slot *slot, uint64_t key) {
  struct wait *wait = box->n_waits ? find_wait(box, key) : NULL;
  struct hold *held = box->n_holds ? find_hold(box, key) : NULL;
  uint64_t now = wait || held ? now_ns() : 0;
  /* Who had to wait for the one unit that it holds did not have it: its UNHOLD is missing. */
  if (held && held->units == 1) held->since_ns = now;
  if (!wait) {
    note_mistake(slot);
    return -EALREADY;
  }
  uint64_t deferred_ns = now > wait->since_ns ? now - wait->since_ns : 0;
  if (wait->place != NOWHERE && load(pbox_domain->ways[wait->place]) == key) { /* or it had to go */
    struct pbox_page_key *shown = &pbox_domain->keys[wait->place];
    add(shown->deferred_ns, deferred_ns);
    add(shown->waits, 1);
  }
  leave(box, wait);
  begin_write(slot);
  store(slot->activity_deferred_ns, slot->activity_deferred_ns + deferred_ns);
  show_wait(box, slot);
  end_write(slot);
  return 0;
}

static int hold(struct box *box, struct pbox_page_slot *slot, uint64_t key) {
  if (box->n_waits && find_wait(box, key)) { /* it holds it, so it no longer waits */
    note_mistake(slot);
    enter(box, slot, key);
  }
  struct hold *held = find_hold(box, key);
  if (held) {
    held->units++; /* a second one, or a lock taken again by who has it */
  } else if (box->n_holds < HOLDS) {
    box->holds[box->n_holds++] = (struct hold){key, now_ns(), 1};
  } else {
    note_mistake(slot); /* it holds something, and detection for that is missed */
    box->more_holds++;
  }
  return 0;
}

/* Holds them against this pBox who wait for what it holds of a key, up to now.  It is not given back
   by that. */
static void charge(struct box *box, struct hold *held) {
  uint32_t place = box->active ? place_of(held->key) : NOWHERE;
  if (place == NOWHERE || !seats_taken(place)) return;
  uint64_t now = now_ns(), since_ns = held->since_ns;
  held->since_ns = now; /* what was before is charged once */
  detect(box, held->key, place, since_ns, now);
}

static void drop_unit(struct box *box, struct hold *held) {
  if (--held->units == 0) *held = box->holds[--box->n_holds];
}

void charge_hold(struct box *box, uint64_t key) {
  struct hold *held = find_hold(box, key);
  if (held) charge(box, held);
}

void drop_hold(struct box *box, uint64_t key) {
  struct hold *held = find_hold(box, key);
  if (held)
    drop_unit(box, held);
  else if (box->more_holds)
    box->more_holds--;
}

static int unhold(struct box *box, struct pbox_page_slot *slot, uint64_t key) {
  struct hold *held = find_hold(box, key);
  if (held) {
    charge(box, held);
    drop_unit(box, held);
  } else if (box->more_holds) {
    box->more_holds--;
  } else {
    note_mistake(slot); /* its HOLD is missing: detection is missed once */
    return -EALREADY;
  }
  if (box->active) settle(box, slot);
  return 0;
}

void drop_waits(struct box *box, struct pbox_page_slot *slot) {
  if (!box->n_waits) return;
  for (int i = 0; i < WAITS; i++)
    if (box->waits[i].key) { /* given up, or its ENTER is missing: it is not known which */
      note_mistake(slot);
      leave(box, &box->waits[i]);
    }
  begin_write(slot);
  show_wait(box, slot);
  end_write(slot);
}

int tell(struct box *box, struct pbox_page_slot *slot, uint64_t key, enum pbox_event event) {
  if (!key) return -EINVAL;
  /* Outside of an activity nothing is traced, but what was given back is no longer held. */
  if (!box->active && event != PBOX_UNHOLD) {
    note_mistake(slot);
    return -EALREADY;
  }
  if (box->paused_from_ns) leave_out_pause(box, slot, now_ns());
  switch (event) {
    case PBOX_PREPARE: return prepare(box, slot, key);
    case PBOX_ENTER: return enter(box, slot, key);
    case PBOX_HOLD: return hold(box, slot, key);
    case PBOX_UNHOLD: return unhold(box, slot, key);
  }
  return -EINVAL;
}

int update_pbox(size_t key, enum pbox_event event) {
  const struct thread *self = &pbox_self;
  if (!self->box || self->epoch != load(pbox_epoch)) return -ENOENT;
  return tell(self->box, self->slot, key, event);
}

int update_pbox_of(int psid, size_t key, enum pbox_event event) {
  struct box *box = box_of(psid);
  if (!box || load(pbox_domain->slots[index_of(box)].pid) != pbox_domain->pid) return -ENOENT;
  uint64_t binding = load(box->binding);
  uint32_t thread = thread_of(binding);
  if (binding != bound_to(psid, thread)) return -ENOENT;
  if (thread && !(thread & LAZY) && thread != this_thread()) return -EBUSY;
  box->shared = true;
  return tell(box, &pbox_domain->slots[index_of(box)], key, event);
}
