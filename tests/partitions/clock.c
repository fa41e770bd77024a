/* A wall clock that can be moved while a program runs: preloaded, it adds the nanoseconds that the file $MOVED_CLOCK
 * has in its first eight bytes. Monotonic clocks stay. libfaketime does as much, but allocates while it starts, and
 * jemalloc asks for the time then, so that neither basalt nor redis-server would get beyond that. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;

__attribute__((constructor)) static void open_offset(void) {
  const char *path = getenv("MOVED_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  void *page = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
  if (page != MAP_FAILED) offset = page;
  if (file >= 0) close(file);
}

int clock_gettime(clockid_t id, struct timespec *at) {
  int result = (int)syscall(SYS_clock_gettime, id, at);
  if (result == 0 && offset && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
    int64_t moved = at->tv_sec * INT64_C(1000000000) + at->tv_nsec + *offset;
    at->tv_sec = moved / 1000000000;
    at->tv_nsec = moved % 1000000000;
  }
  return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  (void)zone;
  struct timespec now;
  int result = clock_gettime(CLOCK_REALTIME, &now);
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return result;
}

time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}
