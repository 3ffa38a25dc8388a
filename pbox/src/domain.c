/*
 * domain.c - the memory that pBoxes live in: made, shared between processes, left, and found
 * again after fork().
 *
 * A domain of one process has its arena in anonymous memory and only its page in a file.  One of
 * several processes has both in files, PATH.page and PATH.arena.  Who opens it holds a lock on
 * byte 0 of the arena's file meanwhile; who has it open holds a shared lock on byte 1, which the
 * kernel gives back however a process ends.  So whoever can lock byte 1 alone is the first, or
 * the first after all others crashed, and makes everything anew.
 *
 * Each writer also holds a shared flock() on the page: that is how a reader knows that somebody
 * lives (docs/pbox-page.md).
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

enum { PATH_BYTES = 256, DEFAULT_BOXES = 1024, DEFAULT_KEYS = 1024 };

/* Sleeping takes 50 us at least (the kernel's default timer slack), so a shorter penalty is none.
   100 ms is the longer of the two lengths that the paper tries in its Table 4. */
#define DEFAULT_PENALTY_MIN_NS 50000ull
#define DEFAULT_PENALTY_MAX_NS 100000000ull
#define LONGEST_PENALTY_NS 3600000000000ull /* an hour; beyond, somebody has mixed up units */

struct domain *pbox_domain;
unsigned pbox_epoch;
_Thread_local struct thread pbox_self;

static struct domain the_domain;
static struct {
  size_t page_bytes, arena_bytes;
  int page_fd, arena_fd;
  char page_path[PATH_BYTES], arena_path[PATH_BYTES];
  bool has_page;
} files;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static bool hooked;

const struct pbox_options *pbox_default_options;
uint32_t pbox_page_flags;
static void at_exit(void);

static size_t lines(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

static uint64_t start_of(uint32_t pid) {
  char path[32], text[1024];
  snprintf(path, sizeof path, "/proc/%u/stat", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  char *field = strrchr(text, ')'); /* the name before it may contain anything */
  for (int i = 2; field && i < 22; i++) field = strchr(field + 1, ' ');
  return field ? strtoull(field, NULL, 10) : 0;
}

/* A process id is soon another one's; its start tells them apart. */
bool process_lives(uint32_t pid, uint64_t start_ticks) {
  if (pid != pbox_domain->pid && kill((pid_t)pid, 0) && errno == ESRCH) return false;
  uint64_t start = pid == pbox_domain->pid ? pbox_domain->start_ticks : start_of(pid);
  return !start || !start_ticks || start == start_ticks;
}

uint32_t this_thread(void) {
  if (!pbox_self.tid) pbox_self.tid = (uint32_t)gettid();
  return pbox_self.tid;
}

/* A lock on one byte of the arena's file; OFD locks belong to the open file, as flock() does. */
static bool lock_byte(int fd, off_t byte, short type, bool wait) {
  struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
  while (fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock) == -1)
    if (errno != EINTR) return false;
  return true;
}

/* Zeros, and memory for all of them: a write to a file that has none left would end the program. */
static int empty_file(int fd, size_t bytes) {
  if (ftruncate(fd, 0)) return errno;
  int result;
  while ((result = posix_fallocate(fd, 0, (off_t)bytes)) == EINTR) {
  }
  return result;
}

static void *map(int fd, size_t bytes) {
  int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  return at == MAP_FAILED ? NULL : at;
}

/* Where each table begins, and the domain's pointers to them. */
struct plan {
  size_t slots, keys, page_bytes;          /* in the page */
  size_t boxes, ways, seats, arena_bytes;  /* in the arena */
};

static struct plan plan_for(size_t n_boxes, size_t n_keys) {
  struct plan plan;
  plan.slots = lines(sizeof(struct pbox_page_header));
  plan.keys = plan.slots + lines(n_boxes * sizeof(struct pbox_page_slot));
  plan.page_bytes = plan.keys + n_keys * sizeof(struct pbox_page_key);
  plan.boxes = lines(sizeof(struct arena));
  plan.ways = plan.boxes + lines(n_boxes * sizeof(struct box));
  plan.seats = plan.ways + n_keys * sizeof(uint64_t);
  plan.arena_bytes = plan.seats + n_keys * SEATS * sizeof(uint32_t);
  return plan;
}

static void point(struct domain *domain, void *page, void *arena, const struct plan *plan) {
  domain->page = page;
  domain->slots = (void *)((char *)page + plan->slots);
  domain->keys = (void *)((char *)page + plan->keys);
  domain->arena = arena;
  domain->boxes = (void *)((char *)arena + plan->boxes);
  domain->ways = (void *)((char *)arena + plan->ways);
  domain->seats = (void *)((char *)arena + plan->seats);
}

static void fill(struct domain *domain, const struct pbox_options *options, uint32_t flags,
                 const struct plan *plan) {
  struct pbox_page_header *page = domain->page;
  struct timespec unix_time;
  clock_gettime(CLOCK_REALTIME, &unix_time);
  *domain->arena = (struct arena){
      .boxes = options->max_pboxes,
      .keys = options->max_keys,
      .penalty_min_ns = options->penalty_min_ns,
      .penalty_max_ns = options->penalty_max_ns,
      .mode = options->mode,
  };
  *page = (struct pbox_page_header){
      .major = PBOX_PAGE_MAJOR,
      .minor = PBOX_PAGE_MINOR,
      .byte_order = PBOX_PAGE_BYTE_ORDER,
      .header_bytes = sizeof *page,
      .page_bytes = plan->page_bytes,
      .pid = domain->pid,
      .uid = (uint32_t)geteuid(),
      .start_ticks = domain->start_ticks,
      .created_unix_ns = (uint64_t)unix_time.tv_sec * 1000000000u + (uint64_t)unix_time.tv_nsec,
      .flags = flags | (options->mode == PBOX_MITIGATE ? PBOX_PAGE_MITIGATES : 0),
      .clock_id = CLOCK_MONOTONIC,
      .slot_offset = (uint32_t)plan->slots,
      .slot_count = options->max_pboxes,
      .slot_stride = sizeof(struct pbox_page_slot),
      .key_offset = (uint32_t)plan->keys,
      .key_count = options->max_keys,
      .key_stride = sizeof(struct pbox_page_key),
  };
  snprintf(page->program, sizeof page->program, "%s", program_invocation_short_name);
  domain->n_boxes = options->max_pboxes;
  domain->key_mask = options->max_keys - 1;
  pool_fill(domain);
  store(domain->arena->ready, ARENA_VERSION);
  store(page->state, PBOX_PAGE_LIVE);
  memcpy(page->magic, PBOX_PAGE_MAGIC, sizeof page->magic);
}

/* A file of our own, mode 0640 less the umask, and never through a link that somebody planted. */
static int open_file(const char *path, int more_flags) {
  int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | more_flags, 0640);
  struct stat status;
  if (fd < 0) return -errno;
  if (fstat(fd, &status) || !S_ISREG(status.st_mode) || status.st_uid != geteuid()) {
    close(fd);
    return -EPERM;
  }
  return fd;
}

/* A page of this process alone.  What is in its way is removed if it is a page that nobody writes
   any more, and nothing else is: the path may be anything that somebody has put into $PBOX_PAGE. */
static int open_fresh(const char *path) {
  int fd = open_file(path, O_CREAT | O_EXCL);
  if (fd != -EEXIST) return fd;
  char magic[sizeof PBOX_PAGE_MAGIC - 1];
  fd = open_file(path, 0);
  if (fd < 0) return fd;
  bool stale = pread(fd, magic, sizeof magic, 0) == sizeof magic &&
               !memcmp(magic, PBOX_PAGE_MAGIC, sizeof magic) &&
               flock(fd, LOCK_EX | LOCK_NB) == 0;
  /* Another process that found it stale, too, may have put its own there meanwhile. */
  struct stat found, there;
  stale = stale && !fstat(fd, &found) && !lstat(path, &there) && found.st_ino == there.st_ino &&
          found.st_dev == there.st_dev;
  if (stale) unlink(path);
  close(fd);
  return stale ? open_file(path, O_CREAT | O_EXCL) : -EEXIST;
}

/* A reader may be trying the lock at this moment, to see whether we live: it is soon done. */
static void lock_page(int fd) {
  const struct timespec moment = {0, 1000000};
  for (int i = 0; i < 10 && flock(fd, LOCK_SH | LOCK_NB); i++) nanosleep(&moment, NULL);
}

static int expand(char *path, const char *pattern) {
  size_t n = 0;
  for (const char *c = pattern; *c; c++) {
    int wrote = c[0] == '%' && c[1] == 'p'
                    ? snprintf(path + n, PATH_BYTES - n, "%d", getpid())
                    : snprintf(path + n, PATH_BYTES - n, "%c", *c);
    if (c[0] == '%' && c[1] == 'p') c++;
    n += (size_t)wrote;
    if (n >= PATH_BYTES) return -ENAMETOOLONG;
  }
  return 0;
}

static int name_files(const struct pbox_options *options) {
  const char *pattern = options->page ? options->page : secure_getenv("PBOX_PAGE");
  char standard[PATH_BYTES];
  if (!pattern || options->domain) {
    if (options->domain && (strchr(options->domain, '/') || strlen(options->domain) > 100))
      return -EINVAL;
    snprintf(standard, sizeof standard, "/dev/shm/pbox-%s.page",
             options->domain ? options->domain : "%p");
    pattern = standard;
  }
  int result = expand(files.page_path, pattern);
  if (options->domain)
    snprintf(files.arena_path, sizeof files.arena_path, "/dev/shm/pbox-%.100s.arena",
             options->domain);
  return result;
}

static int open_private(struct domain *domain, const struct pbox_options *options,
                        uint32_t flags) {
  struct plan plan = plan_for(options->max_pboxes, options->max_keys);
  files.page_fd = files.arena_fd = -1;
  if (files.page_path[0]) files.page_fd = open_fresh(files.page_path);
  if (files.page_fd >= 0 && empty_file(files.page_fd, plan.page_bytes)) {
    unlink(files.page_path);
    close(files.page_fd);
    files.page_fd = -1;
  }
  files.has_page = files.page_fd >= 0;
  void *page = map(files.has_page ? files.page_fd : -1, plan.page_bytes);
  void *arena = map(-1, plan.arena_bytes);
  if (!page || !arena) return -ENOMEM;
  files.page_bytes = plan.page_bytes;
  files.arena_bytes = plan.arena_bytes;
  point(domain, page, arena, &plan);
  if (files.has_page) lock_page(files.page_fd);
  fill(domain, options, flags, &plan);
  return 0;
}

/* The sizes of a domain that others have made; what its files say is checked, for it is mapped. */
static int adopt(struct domain *domain, struct plan *plan) {
  struct arena head;
  struct stat arena_file, page_file;
  if (pread(files.arena_fd, &head, sizeof head, 0) != sizeof head || head.ready != ARENA_VERSION ||
      fstat(files.arena_fd, &arena_file) || fstat(files.page_fd, &page_file))
    return -EIO;
  *plan = plan_for(head.boxes, head.keys);
  if ((uint64_t)arena_file.st_size != plan->arena_bytes ||
      (uint64_t)page_file.st_size != plan->page_bytes)
    return -EIO;
  domain->n_boxes = head.boxes;
  domain->key_mask = head.keys - 1;
  return 0;
}

/* Opens the arena's file and locks its byte 0.  Whoever closed the domain meanwhile may have
   removed the file that was opened: then there is another one. */
static int lock_arena(void) {
  struct stat status;
  for (;;) {
    files.arena_fd = open_file(files.arena_path, O_CREAT);
    if (files.arena_fd < 0) return files.arena_fd;
    if (!lock_byte(files.arena_fd, 0, F_WRLCK, true) || fstat(files.arena_fd, &status)) return -EIO;
    if (status.st_nlink) return 0;
    close(files.arena_fd);
  }
}

static int open_shared(struct domain *domain, const struct pbox_options *options,
                       uint32_t flags) {
  int result = lock_arena();
  if (result) return result;
  files.page_fd = open_file(files.page_path, O_CREAT);
  if (files.page_fd < 0) return files.page_fd;
  bool first = lock_byte(files.arena_fd, 1, F_WRLCK, false);
  struct plan plan = plan_for(options->max_pboxes, options->max_keys);
  if (first) { /* old contents go; a process that still maps them has crashed */
    result = -empty_file(files.arena_fd, plan.arena_bytes);
    if (!result) result = -empty_file(files.page_fd, plan.page_bytes);
    if (result) { /* there is no room for them */
      unlink(files.page_path);
      unlink(files.arena_path);
    }
  } else {
    result = adopt(domain, &plan);
  }
  if (!result) {
    void *page = map(files.page_fd, plan.page_bytes);
    void *arena = map(files.arena_fd, plan.arena_bytes);
    if (!page || !arena) result = -ENOMEM;
    files.page_bytes = plan.page_bytes;
    files.arena_bytes = plan.arena_bytes;
    if (!result) point(domain, page, arena, &plan);
  }
  if (!result) {
    lock_page(files.page_fd);
    if (first) fill(domain, options, flags | PBOX_PAGE_PROCESSES, &plan);
    lock_byte(files.arena_fd, 1, F_RDLCK, true);
    files.has_page = true;
  }
  lock_byte(files.arena_fd, 0, F_UNLCK, false);
  return result;
}

static void forget(void) {
  if (the_domain.page) munmap(the_domain.page, files.page_bytes);
  if (the_domain.arena) munmap(the_domain.arena, files.arena_bytes);
  if (files.page_fd >= 0) close(files.page_fd);
  if (files.arena_fd >= 0) close(files.arena_fd);
  memset(&the_domain, 0, sizeof the_domain);
  memset(&files, 0, sizeof files);
  files.page_fd = files.arena_fd = -1;
  store(pbox_domain, NULL);
  store(pbox_epoch, pbox_epoch + 1);
  directory_clear();
}

/* Puts the same bytes in the same place from a file that was opened anew. */
static bool map_again(void *place, size_t bytes, int fd) {
  return mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == place;
}

/* The open files, and so the locks on them, are the parent's as well: a child needs its own, of the
   same files.  Mappings too keep a file open, with its locks: without new ones the parent would
   hold its locks for as long as the child lives.  False when the last process that had them has
   ended meanwhile. */
static bool reopen(void) {
  struct stat old, arena;
  bool known = !fstat(files.arena_fd, &old);
  close(files.arena_fd);
  close(files.page_fd);
  files.arena_fd = open_file(files.arena_path, 0);
  files.page_fd = open_file(files.page_path, 0);
  if (!known || files.arena_fd < 0 || files.page_fd < 0) return false;
  if (!lock_byte(files.arena_fd, 1, F_RDLCK, true) || fstat(files.arena_fd, &arena)) return false;
  lock_page(files.page_fd);
  return arena.st_nlink && arena.st_ino == old.st_ino && arena.st_dev == old.st_dev &&
         map_again(the_domain.arena, files.arena_bytes, files.arena_fd) &&
         map_again(the_domain.page, files.page_bytes, files.page_fd);
}

/* A child has one thread, and no pBox: those that it inherited are its parent's. */
static void in_child(void) {
  memset(&pbox_self, 0, sizeof pbox_self);
  opening = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  if (!pbox_domain) return;
  if (!pbox_domain->processes) {
    forget();
    return;
  }
  directory_clear();
  store(pbox_epoch, pbox_epoch + 1);
  pbox_domain->pid = (uint32_t)getpid();
  pbox_domain->start_ticks = start_of(pbox_domain->pid);
  if (!reopen()) forget();
}

static int read_options(struct pbox_options *read, const struct pbox_options *given) {
  memset(read, 0, sizeof *read);
  if (given) {
    size_t size = given->size ? given->size : sizeof *given;
    if (size > sizeof *given) return -EINVAL;
    memcpy(read, given, size);
  }
  if (read->max_pboxes > 65535 || read->max_keys > 65536) return -EINVAL;
  if (read->mode != PBOX_MITIGATE && read->mode != PBOX_MEASURE) return -EINVAL;
  if (!read->max_pboxes) read->max_pboxes = DEFAULT_BOXES;
  if (!read->max_keys) read->max_keys = DEFAULT_KEYS;
  unsigned keys = WAYS;
  while (keys < read->max_keys) keys *= 2;
  read->max_keys = keys;
  if (!read->penalty_min_ns) read->penalty_min_ns = DEFAULT_PENALTY_MIN_NS;
  if (!read->penalty_max_ns) read->penalty_max_ns = DEFAULT_PENALTY_MAX_NS;
  if (read->penalty_min_ns > read->penalty_max_ns) return -EINVAL;
  if (read->penalty_max_ns > LONGEST_PENALTY_NS) return -EINVAL;
  if (read->holds != PBOX_HOLDS_STAY && read->holds != PBOX_HOLDS_END) return -EINVAL;
  const char *mode = secure_getenv("PBOX_MODE");
  if (mode && !strcmp(mode, "measure")) read->mode = PBOX_MEASURE;
  if (mode && !strcmp(mode, "mitigate")) read->mode = PBOX_MITIGATE;
  return 0;
}

static int open_locked(const struct pbox_options *given) {
  if (pbox_domain) return -EALREADY;
  struct pbox_options options;
  int result = read_options(&options, given);
  memset(&files, 0, sizeof files);
  files.page_fd = files.arena_fd = -1;
  if (!result) result = name_files(&options);
  if (result) return result;
  if (!hooked) {
    pthread_atfork(NULL, NULL, in_child);
    atexit(at_exit);
    hooked = true;
  }
  the_domain.pid = (uint32_t)getpid();
  the_domain.start_ticks = start_of(the_domain.pid);
  the_domain.processes = options.domain != NULL;
  the_domain.holds_end = options.holds == PBOX_HOLDS_END;
  result = options.domain ? open_shared(&the_domain, &options, pbox_page_flags)
                          : open_private(&the_domain, &options, pbox_page_flags);
  if (result) {
    forget();
    return result;
  }
  the_domain.mitigates = the_domain.arena->mode == PBOX_MITIGATE;
  store(pbox_epoch, pbox_epoch + 1);
  store(pbox_domain, &the_domain);
  if (the_domain.processes) reap_all();
  return 0;
}

int open_pbox(const struct pbox_options *options) {
  pthread_mutex_lock(&opening);
  int result = open_locked(options);
  pthread_mutex_unlock(&opening);
  return result;
}

int domain_or_default(void) {
  if (load(pbox_domain)) return 0;
  int result = open_pbox(pbox_default_options);
  return result == -EALREADY ? 0 : result;
}

/* Of several processes, the last one puts out the light. */
static void remove_files(void) {
  struct pbox_page_header *page = the_domain.page;
  if (!the_domain.processes) {
    store(page->state, PBOX_PAGE_CLOSED);
    if (files.has_page) unlink(files.page_path);
    return;
  }
  lock_byte(files.arena_fd, 0, F_WRLCK, true);
  if (lock_byte(files.arena_fd, 1, F_WRLCK, false)) {
    store(page->state, PBOX_PAGE_CLOSED);
    unlink(files.page_path);
    unlink(files.arena_path);
  }
  lock_byte(files.arena_fd, 0, F_UNLCK, false);
}

/* Other threads may go on until the process is gone, so nothing is unmapped. */
static void at_exit(void) {
  pthread_mutex_lock(&opening);
  if (pbox_domain) remove_files();
  pthread_mutex_unlock(&opening);
}

void close_pbox(void) {
  pthread_mutex_lock(&opening);
  if (pbox_domain) {
    if (pbox_domain->processes) reap_own();
    remove_files();
    forget();
  }
  pthread_mutex_unlock(&opening);
}

const char *pbox_page_path(void) {
  return load(pbox_domain) && files.has_page ? files.page_path : NULL;
}
