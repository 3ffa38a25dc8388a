/* A domain of several processes: deferral across them, crashes, and the files' life. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "check.h"
#include "clock.h"
#include "internal.h"

static const size_t KEY = 42;
static char domain[32], page[64], arena[64];

static void open_domain(void) {
  struct pbox_options options = {.domain = domain, .max_pboxes = 4};
  int result = open_pbox(&options);
  CHECK(result == 0 || result == -EALREADY); /* a child of fork() has its parent's */
}

static struct pbox_page_header header(void) {
  struct pbox_page_header read_header = {0};
  int fd = open(page, O_RDONLY);
  CHECK(fd >= 0 && read(fd, &read_header, sizeof read_header) == sizeof read_header);
  close(fd);
  return read_header;
}

/* Forks a process that opens the domain, does `what`, and then waits to be killed. */
static pid_t start(void (*what)(void)) {
  int ready[2];
  char done;
  CHECK(pipe(ready) == 0);
  pid_t child = fork();
  if (child == 0) {
    open_domain();
    what();
    CHECK(write(ready[1], "x", 1) == 1);
    for (;;) pause();
  }
  close(ready[1]);
  CHECK(read(ready[0], &done, 1) == 1); /* or it has failed */
  close(ready[0]);
  return child;
}

static void crash(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
}

static void wait_for_key(void) {
  activate_pbox(create_pbox(half));
  update_pbox(KEY, PBOX_PREPARE);
}

static void take_all_slots(void) {
  while (create_pbox(half) > 0) {
  }
}

static void nothing(void) {}

/* Forks a process that does `what`, and waits for its end. */
static void run(void (*what)(void)) {
  int status;
  pid_t child = fork();
  if (child == 0) {
    what();
    exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void who_defers_another_process_is_found(void) {
  open_domain();
  CHECK(header().flags & PBOX_PAGE_PROCESSES);
  int noisy = create_pbox(half);
  activate_pbox(noisy);
  update_pbox(KEY, PBOX_HOLD);
  pid_t victim = start(wait_for_key);
  pass_ms(10);
  update_pbox(KEY, PBOX_UNHOLD);
  CHECK(stats_of(noisy).times_noisy == 1 && stats_of(noisy).penalties == 1);
  crash(victim);
  update_pbox(KEY, PBOX_HOLD); /* the dead one is still in its seat */
  pass_ms(10);
  update_pbox(KEY, PBOX_UNHOLD);
  CHECK(stats_of(noisy).times_noisy == 1);
  close_pbox();
  CHECK(access(page, F_OK) && access(arena, F_OK));
}

static void slots_of_a_crashed_process_are_used_again(void) {
  open_domain();
  crash(start(take_all_slots));
  CHECK(create_pbox(half) > 0);
  close_pbox();
}

static void finish_one_activity_and_begin_another(void) {
  int psid = create_pbox(half);
  activate_pbox(psid);
  pass_ms(2);
  freeze_pbox(psid);
  activate_pbox(psid);
}

static void finish_one_activity_and_leave_in_the_next(void) {
  open_domain();
  finish_one_activity_and_begin_another();
  close_pbox();
}

static void what_a_process_has_finished_stays_when_it_ends_or_crashes(void) {
  open_domain();
  run(finish_one_activity_and_leave_in_the_next);
  const struct pbox_page_slot *slot = &pbox_domain->slots[0];
  CHECK(slot->ended.pboxes == 1 && slot->ended.activities == 2);
  crash(start(finish_one_activity_and_begin_another));
  uint64_t before_ns = slot->ended.executed_ns, its_ns = slot->executed_ns;
  CHECK(slot->psid && its_ns >= 2000000);
  reap_all();
  CHECK(!slot->psid && slot->ended.pboxes == 2 && slot->ended.activities == 3);
  CHECK(slot->ended.executed_ns == before_ns + its_ns); /* nobody knows how long the other was */
  close_pbox();
}

static void what_crashed_processes_left_is_made_anew(void) {
  crash(start(take_all_slots));
  CHECK(access(page, F_OK) == 0);
  int fd = open(page, O_RDONLY);
  CHECK(flock(fd, LOCK_EX | LOCK_NB) == 0); /* that is how a reader knows */
  close(fd);
  open_domain();
  fd = open(page, O_RDONLY);
  CHECK(flock(fd, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK);
  close(fd);
  CHECK(header().state == PBOX_PAGE_LIVE && header().slot_used == 0);
  close_pbox();
}

static void a_domain_lives_while_one_process_has_it(void) {
  open_domain();
  pid_t other = start(nothing);
  close_pbox();
  CHECK(access(page, F_OK) == 0 && header().state == PBOX_PAGE_LIVE);
  open_domain(); /* the same again */
  crash(other);
  close_pbox();
  CHECK(access(page, F_OK) == -1);
}

static void a_damaged_domain_is_refused(void) {
  pid_t other = start(nothing);
  CHECK(truncate(arena, 4096) == 0);
  struct pbox_options options = {.domain = domain};
  CHECK(open_pbox(&options) == -EIO);
  crash(other);
  CHECK(open_pbox(&options) == 0);
  close_pbox();
  options.domain = "../etc";
  CHECK(open_pbox(&options) == -EINVAL);
}

static void a_child_of_fork_has_no_pbox_of_its_parents(void) {
  int psid = create_pbox(half); /* in a domain of this process alone */
  activate_pbox(psid);
  pid_t child = fork();
  if (child == 0) {
    CHECK(update_pbox(KEY, PBOX_HOLD) == -ENOENT && activate_pbox(psid) == -ENOENT);
    CHECK(create_pbox(half) > 0); /* a domain of its own */
    CHECK(strcmp(pbox_page_path(), page));
    exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(access(pbox_page_path(), F_OK) == 0); /* the child's end has not removed it */
  CHECK(update_pbox(KEY, PBOX_HOLD) == 0);
  close_pbox();
}

static int parents;

static void work_and_exit(void) {
  CHECK(stat_pbox(parents, &(struct pbox_stats){0}) == 0); /* it is there, and its parent's */
  CHECK(activate_pbox(parents) == -ENOENT && release_pbox(parents) == -ENOENT);
  CHECK(update_pbox_of(parents, KEY, PBOX_HOLD) == -ENOENT);
  CHECK(activate_pbox(create_pbox(half)) == 0);
}

static void close_and_open(void) {
  uint64_t made = header().created_unix_ns;
  close_pbox();
  CHECK(access(page, F_OK) == 0 && header().state == PBOX_PAGE_LIVE);
  open_domain();
  CHECK(header().created_unix_ns == made); /* the same, not one of its own */
}

static void a_child_that_ends_leaves_its_parents_domain(void) {
  open_domain();
  parents = create_pbox(half);
  run(work_and_exit);
  CHECK(access(page, F_OK) == 0 && header().state == PBOX_PAGE_LIVE);
  run(close_and_open);
  CHECK(access(page, F_OK) == 0 && header().state == PBOX_PAGE_LIVE);
  CHECK(activate_pbox(parents) == 0);
  close_pbox();
  CHECK(access(page, F_OK) == -1);
}

static int heard[2];

/* Its parent has opened the domain, and ends first. */
static void open_and_leave_it_to_a_child(void) {
  int runs[2];
  char done;
  CHECK(pipe(runs) == 0);
  open_domain();
  if (fork() == 0) {
    CHECK(write(runs[1], "x", 1) == 1);
    CHECK(read(heard[0], &done, 1) == 1);
    CHECK(create_pbox(half) > 0 && header().state == PBOX_PAGE_LIVE);
    exit(0);
  }
  CHECK(read(runs[0], &done, 1) == 1);
}

static void a_child_that_outlives_its_parent_keeps_the_domain(void) {
  CHECK(pipe(heard) == 0);
  run(open_and_leave_it_to_a_child);
  CHECK(access(page, F_OK) == 0 && header().state == PBOX_PAGE_LIVE);
  CHECK(write(heard[1], "x", 1) == 1);
  for (int i = 0; i < 1000 && access(page, F_OK) == 0; i++) sleep_ms(5);
  CHECK(access(page, F_OK) == -1); /* it was the last */
}

static void a_process_id_that_is_another_ones_by_now_keeps_no_slot(void) {
  open_domain();
  int mine = create_pbox(half);
  pid_t other = start(take_all_slots);
  for (uint32_t i = 0; i < pbox_domain->n_boxes; i++) pbox_domain->slots[i].start_ticks++;
  reap_all();
  CHECK(stat_pbox(mine, &(struct pbox_stats){0}) == -ENOENT); /* somebody's with our id */
  CHECK(create_pbox(half) > 0 && create_pbox(half) > 0); /* and those of the other one's id */
  crash(other);
  close_pbox();
}

static bool write_to(const char *path, const char *text) {
  int fd = open(path, O_WRONLY);
  bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
  close(fd);
  return done;
}

/* Mounts of its own, as root or as somebody who is root in a user namespace. */
static bool leave_mounts(void) {
  char users[32], groups[32];
  snprintf(users, sizeof users, "0 %u 1", geteuid());
  snprintf(groups, sizeof groups, "0 %u 1", getegid());
  return unshare(CLONE_NEWNS) == 0 ||
         (unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && write_to("/proc/self/setgroups", "deny") &&
          write_to("/proc/self/uid_map", users) && write_to("/proc/self/gid_map", groups));
}

static void fill_shared_memory(void) {
  if (!leave_mounts() || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
      mount("none", "/dev/shm", "tmpfs", 0, "size=64k")) {
    printf("skipped: a full /dev/shm, for this user may not mount one of its own\n");
    return;
  }
  CHECK(create_pbox(half) > 0 && pbox_page_path() == NULL);
  close_pbox();
  struct pbox_options options = {.domain = domain};
  CHECK(open_pbox(&options) == -ENOSPC);
  CHECK(access(page, F_OK) == -1 && access(arena, F_OK) == -1);
}

static void a_full_file_system_costs_the_page_and_nothing_else(void) { run(fill_shared_memory); }

static void nothing_but_an_old_page_is_removed_from_a_pages_path(void) {
  char path[64];
  snprintf(path, sizeof path, "/dev/shm/pbox-test-%d.text", getpid());
  int fd = open(path, O_CREAT | O_WRONLY, 0600);
  CHECK(write(fd, "somebody's letters", 18) == 18);
  close(fd);
  struct pbox_options options = {.page = path};
  CHECK(open_pbox(&options) == 0); /* it works without one */
  CHECK(pbox_page_path() == NULL && create_pbox(half) > 0);
  close_pbox();
  fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
  CHECK(write(fd, PBOX_PAGE_MAGIC, 8) == 8);
  close(fd);
  CHECK(open_pbox(&options) == 0 && pbox_page_path() != NULL);
  close_pbox();
  CHECK(access(path, F_OK) == -1);
}

int main(void) {
  snprintf(domain, sizeof domain, "test-%d", getpid());
  snprintf(page, sizeof page, "/dev/shm/pbox-%s.page", domain);
  snprintf(arena, sizeof arena, "/dev/shm/pbox-%s.arena", domain);
  who_defers_another_process_is_found();
  slots_of_a_crashed_process_are_used_again();
  what_a_process_has_finished_stays_when_it_ends_or_crashes();
  what_crashed_processes_left_is_made_anew();
  a_domain_lives_while_one_process_has_it();
  a_damaged_domain_is_refused();
  a_child_of_fork_has_no_pbox_of_its_parents();
  a_child_that_ends_leaves_its_parents_domain();
  a_child_that_outlives_its_parent_keeps_the_domain();
  a_process_id_that_is_another_ones_by_now_keeps_no_slot();
  a_full_file_system_costs_the_page_and_nothing_else();
  nothing_but_an_old_page_is_removed_from_a_pages_path();
  return 0;
}
