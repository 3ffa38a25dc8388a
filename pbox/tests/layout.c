/* Prints each field of the page as "struct offset bytes name", for the test that holds
   docs/pbox-page.md to it. */
#include <stdio.h>

#include "pbox_page.h"

#define FIELD(type, name)                                                       \
  printf(#type " %zu %zu " #name "\n", offsetof(struct pbox_page_##type, name), \
         sizeof(((struct pbox_page_##type *)0)->name))

int main(void) {
  FIELD(header, magic);
  FIELD(header, major);
  FIELD(header, minor);
  FIELD(header, byte_order);
  FIELD(header, header_bytes);
  FIELD(header, state);
  FIELD(header, page_bytes);
  FIELD(header, pid);
  FIELD(header, uid);
  FIELD(header, start_ticks);
  FIELD(header, created_unix_ns);
  FIELD(header, flags);
  FIELD(header, clock_id);
  FIELD(header, slot_offset);
  FIELD(header, slot_count);
  FIELD(header, slot_stride);
  FIELD(header, slot_used);
  FIELD(header, key_offset);
  FIELD(header, key_count);
  FIELD(header, key_stride);
  FIELD(header, slots_refused);
  FIELD(header, keys_refused);
  FIELD(header, program);
  FIELD(slot, seq);
  FIELD(slot, psid);
  FIELD(slot, pid);
  FIELD(slot, tid);
  FIELD(slot, start_ticks);
  FIELD(slot, state);
  FIELD(slot, metric);
  FIELD(slot, goal);
  FIELD(slot, level);
  FIELD(slot, activities);
  FIELD(slot, executed_ns);
  FIELD(slot, deferred_ns);
  FIELD(slot, activity_start_ns);
  FIELD(slot, activity_deferred_ns);
  FIELD(slot, wait_since_ns);
  FIELD(slot, wait_key);
  FIELD(slot, times_victim);
  FIELD(slot, times_noisy);
  FIELD(slot, penalties);
  FIELD(slot, penalty_ns);
  FIELD(slot, not_before_ns);
  FIELD(slot, events_ignored);
  FIELD(slot, name);
  FIELD(slot, ended.pboxes);
  FIELD(slot, ended.activities);
  FIELD(slot, ended.executed_ns);
  FIELD(slot, ended.deferred_ns);
  FIELD(slot, ended.times_victim);
  FIELD(slot, ended.times_noisy);
  FIELD(slot, ended.penalties);
  FIELD(slot, ended.penalty_ns);
  FIELD(key, key);
  FIELD(key, deferred_ns);
  FIELD(key, waits);
  FIELD(key, noisy);
  FIELD(key, kind);
  FIELD(key, not_counted);
  FIELD(key, name);
  return 0;
}
