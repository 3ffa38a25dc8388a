/*
 * keys.c - where the pBoxes that wait for a key find each other (the paper's competitor map).
 *
 * A set-associative table as in a processor's cache: a key's hash gives WAYS places, one cache
 * line to look through, and each place has SEATS for those who wait.  Taking a place, taking a
 * seat and leaving it are single atomic operations: nothing to lock, nothing that a crash leaves
 * locked.
 *
 * Departure.  The paper has a hash map of lists, which grow.  Programs have a key for each row;
 * here a new key takes the place of the one that has deferred the least and that nobody waits
 * for, of those first that only the idle wait for.  Whoever took a seat for the old key in that very moment is passed over once, because a
 * reader compares the key of the wait: detection is missed, never wrong.  With all seats taken,
 * the 17th waiter still has its T_d; one of 17 victims will do to find who is noisy.
 */
#include <string.h>

#include "internal.h"

static uint32_t first_way(uint64_t key) {
  /* Fibonacci hashing: addresses differ in their middle bits, the product's high bits mix them. */
  uint64_t hash = (key * 0x9e3779b97f4a7c15ull) >> 32;
  return (uint32_t)hash & pbox_domain->key_mask & ~(uint32_t)(WAYS - 1);
}

uint32_t place_of(uint64_t key) {
  uint32_t first = first_way(key);
  for (uint32_t i = first; i < first + WAYS; i++)
    if (load(pbox_domain->ways[i]) == key) return i;
  return NOWHERE;
}

bool seats_taken(uint32_t place) {
  for (uint32_t i = 0; i < SEATS; i++)
    if (load(pbox_domain->seats[place * SEATS + i])) return true;
  return false;
}

/* The place whose key matters least: a free one, or what has deferred nobody for long; named keys
   stay, for the program has said that it wants to see them. */
static uint32_t least_of(uint32_t first) {
  uint32_t least = NOWHERE;
  uint64_t least_ns = UINT64_MAX;
  for (uint32_t i = first; i < first + WAYS; i++) {
    if (!load(pbox_domain->ways[i])) return i;
    struct pbox_page_key *shown = &pbox_domain->keys[i];
    uint64_t deferred_ns = load(shown->not_counted) ? 0 : load(shown->deferred_ns);
    if (deferred_ns < least_ns && !load(shown->name[0]) && !seats_taken(i)) {
      least = i;
      least_ns = deferred_ns;
    }
  }
  return least;
}

/* Two threads that bring the same key at once may have claimed two places for it. */
static bool twice(uint64_t key, uint32_t first, uint32_t place) {
  for (uint32_t i = first; i < first + WAYS; i++)
    if (i != place && load(pbox_domain->ways[i]) == key) return true;
  return false;
}

uint32_t place_for(uint64_t key) {
  uint32_t first = first_way(key);
  for (int attempt = 0; attempt < 4; attempt++) { /* others may claim the same place: rare */
    uint32_t place = place_of(key);
    if (place != NOWHERE) return place;
    place = least_of(first);
    if (place == NOWHERE) break;
    uint64_t old = load(pbox_domain->ways[place]);
    if (!claim(pbox_domain->ways[place], &old, key)) continue;
    if (twice(key, first, place)) {
      store(pbox_domain->ways[place], 0);
      continue;
    }
    struct pbox_page_key *shown = &pbox_domain->keys[place];
    store(shown->key, 0);
    store(shown->deferred_ns, 0);
    store(shown->waits, 0);
    store(shown->noisy, 0);
    store(shown->kind, PBOX_KEY_PLAIN);
    store(shown->not_counted, 0);
    for (size_t i = 0; i < sizeof shown->name; i++) store(shown->name[i], 0);
    store(shown->key, key);
    return place;
  }
  add(pbox_domain->page->keys_refused, 1);
  return NOWHERE;
}

uint32_t take_seat(uint32_t place, uint32_t box_index) {
  uint32_t *seats = &pbox_domain->seats[place * SEATS];
  for (uint32_t i = 0; i < SEATS; i++) {
    uint32_t seat = (box_index + i) % SEATS; /* a place of its own for each: fewer failed claims */
    uint32_t nobody = 0;
    if (!load(seats[seat]) && claim(seats[seat], &nobody, box_index + 1)) return seat;
  }
  return NOWHERE;
}

void leave_seat(uint32_t place, uint32_t seat, uint32_t box_index) {
  uint32_t mine = box_index + 1;
  if (seat != NOWHERE) claim(pbox_domain->seats[place * SEATS + seat], &mine, 0);
}
