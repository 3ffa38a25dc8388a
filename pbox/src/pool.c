/*
 * pool.c - which boxes are free: a stack without a lock (Treiber 1986).
 *
 * The head carries a tag beside the index, so that a box that was taken and given back meanwhile
 * is not mistaken for the head that was read (ABA).
 */
#include "internal.h"

static uint64_t head_of(uint64_t old, uint32_t index_plus_1) {
  return ((old >> 32) + 1) << 32 | index_plus_1;
}

void pool_fill(struct domain *domain) {
  for (uint32_t i = 0; i < domain->n_boxes; i++)
    domain->boxes[i].next_free = i + 1 < domain->n_boxes ? i + 2 : 0;
  store(domain->arena->free_head, 1);
}

uint32_t pool_take(void) {
  uint64_t head = load(pbox_domain->arena->free_head);
  for (;;) {
    uint32_t top = (uint32_t)head;
    if (!top || top > pbox_domain->n_boxes) return NOWHERE;
    uint32_t next = load(pbox_domain->boxes[top - 1].next_free);
    if (claim(pbox_domain->arena->free_head, &head, head_of(head, next))) return top - 1;
  }
}

void pool_give(uint32_t index) {
  uint64_t head = load(pbox_domain->arena->free_head);
  do {
    store(pbox_domain->boxes[index].next_free, (uint32_t)head);
  } while (!claim(pbox_domain->arena->free_head, &head, head_of(head, index + 1)));
}

/* What the pBox has done becomes part of what was done in its place; the sum of both stays. */
static void count_as_ended(struct pbox_page_slot *slot) {
  struct pbox_page_ended *ended = &slot->ended;
  store(ended->pboxes, ended->pboxes + 1);
#define MOVE(field) store(ended->field, ended->field + swap(slot->field, 0))
  MOVE(activities);
  MOVE(executed_ns);
  MOVE(deferred_ns);
  MOVE(times_victim);
  MOVE(times_noisy);
  MOVE(penalties);
  MOVE(penalty_ns);
#undef MOVE
}

/* Ends a pBox: nobody finds it any more, neither by its psid nor among those who wait.  Whoever sets
   the psid to 0 is the one who gives the box back, so that two who reap it do not both. */
bool retire(uint32_t index, uint32_t psid) {
  struct box *box = &pbox_domain->boxes[index];
  struct pbox_page_slot *slot = &pbox_domain->slots[index];
  if (!psid || !claim(slot->psid, &psid, 0)) return false;
  if (slot->seq % 2 == 0) begin_write(slot); /* it may have died while writing */
  for (int i = 0; i < WAITS; i++) {
    struct wait *wait = &box->waits[i];
    if (load(wait->key) && wait->place <= pbox_domain->key_mask)
      leave_seat(wait->place, wait->seat, index);
    store(wait->key, 0);
  }
  count_as_ended(slot);
  store(slot->state, PBOX_SLOT_FREE);
  store(slot->activity_start_ns, 0);
  store(slot->activity_deferred_ns, 0);
  store(slot->wait_since_ns, 0);
  end_write(slot);
  store(box->binding, 0);
  pool_give(index);
  return true;
}

/* The psid is read first: when it still is the same at retire(), so was the process. */
static bool reap(uint32_t index) {
  const struct pbox_page_slot *slot = &pbox_domain->slots[index];
  uint32_t psid = load(slot->psid);
  if (!psid || process_lives(load(slot->pid), load(slot->start_ticks))) return false;
  retire(index, psid);
  return true;
}

void reap_all(void) {
  uint32_t used = load(pbox_domain->page->slot_used);
  for (uint32_t i = 0; i < used && i < pbox_domain->n_boxes; i++) reap(i);
}

void reap_own(void) {
  uint32_t used = load(pbox_domain->page->slot_used);
  for (uint32_t i = 0; i < used && i < pbox_domain->n_boxes; i++) {
    struct pbox_page_slot *slot = &pbox_domain->slots[i];
    uint32_t psid = load(slot->psid);
    if (!psid || load(slot->pid) != pbox_domain->pid) continue;
    if (pbox_domain->boxes[i].active) end_activity(&pbox_domain->boxes[i], slot, now_ns());
    retire(i, psid);
  }
}

/* What a thread has left behind may be taken over by another one of its process, so only its waits
   end.  A pBox that is bound to nobody waits for whoever takes it next. */
bool waits_in_vain(uint32_t index) {
  struct box *box = &pbox_domain->boxes[index];
  struct pbox_page_slot *slot = &pbox_domain->slots[index];
  if (pbox_domain->processes && reap(index)) return true;
  uint64_t binding = load(box->binding);
  uint32_t thread = thread_of(binding), pid = load(slot->pid);
  if (!thread || thread & LAZY || thread_lives(pid, thread)) return false;
  uint64_t nobodys = binding - thread;
  if (pid == pbox_domain->pid && claim(box->binding, &binding, nobodys | this_thread())) {
    drop_waits(box, slot);
    store(box->binding, nobodys);
  }
  return true;
}
