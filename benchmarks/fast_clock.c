// A clock that runs SPEED times as fast, for a process with this library preloaded: a day passes in minutes.
//
// Readings of the clocks are stretched, and waits are shortened, so timeouts and periods keep their meaning. poll,
// by which sockets wait, is left as it is: at their other end is a program on the true clock.
// The time of day can be set while the process runs, for all processes at once, by the file DAY_CONTROL (an
// int64: ns to add); the monotonic clocks do not know of it, as on a machine whose clock is set.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static double speed = 1;
static int64_t monotonic_base, real_base;
static volatile int64_t nothing, *set_by = &nothing;

static int64_t ns_of(const struct timespec* t) { return t->tv_sec * 1000000000LL + t->tv_nsec; }

static struct timespec spec_of(int64_t ns) {
  if (ns < 0) ns = 0;
  return (struct timespec){ns / 1000000000LL, ns % 1000000000LL};
}

static int64_t true_ns(clockid_t clock) {
  struct timespec t;
  syscall(SYS_clock_gettime, clock, &t);
  return ns_of(&t);
}

__attribute__((constructor)) static void begin(void) {
  const char *by = getenv("DAY_SPEED"), *bases = getenv("DAY_BASES"), *control = getenv("DAY_CONTROL");
  if (!by || !bases || !control) return;
  char* rest;
  monotonic_base = strtoll(bases, &rest, 10);
  real_base = strtoll(rest + 1, NULL, 10);
  int file = open(control, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  void* page = mmap(NULL, sizeof *set_by, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (page == MAP_FAILED) return;
  set_by = page;
  speed = atof(by);
}

static int64_t monotonic(void) {
  return monotonic_base + (int64_t)((true_ns(CLOCK_MONOTONIC) - monotonic_base) * speed);
}

static int64_t time_of_day(void) { return real_base + (monotonic() - monotonic_base) + *set_by; }

int clock_gettime(clockid_t clock, struct timespec* t) {
  if (speed != 1 &&
      (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_MONOTONIC_COARSE)) {
    *t = spec_of(monotonic());
    return 0;
  }
  if (speed != 1 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    *t = spec_of(time_of_day());
    return 0;
  }
  return (int)syscall(SYS_clock_gettime, clock, t);
}

time_t time(time_t* t) {
  time_t now = time_of_day() / 1000000000LL;
  if (t) *t = now;
  return now;
}

int gettimeofday(struct timeval* restrict t, void* restrict zone) {
  (void)zone;
  int64_t now = time_of_day() / 1000;
  *t = (struct timeval){now / 1000000, now % 1000000};
  return 0;
}

// The true moment of a deadline, by the system's clock of that kind. Only the time of day is past the year 2001.
static struct timespec deadline(const struct timespec* t) {
  int64_t at = ns_of(t), is_day = at > 1000000000LL * 1000000000LL;
  int64_t left = at - (is_day ? time_of_day() : monotonic());
  return spec_of(
      true_ns(is_day ? CLOCK_REALTIME : CLOCK_MONOTONIC) + (left > 0 ? (int64_t)(left / speed) : 0));
}

#define REAL(name)               \
  static __typeof__(&name) real; \
  if (!real) real = dlsym(RTLD_NEXT, #name);

int sem_clockwait(sem_t* restrict s, clockid_t clock, const struct timespec* restrict t) {
  REAL(sem_clockwait)
  struct timespec d = deadline(t);
  return real(s, clock, &d);
}

int sem_timedwait(sem_t* restrict s, const struct timespec* restrict t) {
  REAL(sem_timedwait)
  struct timespec d = deadline(t);
  return real(s, &d);
}

int pthread_cond_timedwait(
    pthread_cond_t* restrict c, pthread_mutex_t* restrict m, const struct timespec* restrict t) {
  static __typeof__(&pthread_cond_timedwait) real;  // there is an older one of another layout
  if (!real) real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
  struct timespec d = deadline(t);
  return real(c, m, &d);
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec* t, struct timespec* left) {
  REAL(clock_nanosleep)
  struct timespec d = flags & TIMER_ABSTIME ? deadline(t) : spec_of((int64_t)(ns_of(t) / speed));
  return real(clock, flags, &d, left);
}

int nanosleep(const struct timespec* t, struct timespec* left) {
  REAL(nanosleep)
  struct timespec d = spec_of((int64_t)(ns_of(t) / speed));
  return real(&d, left);
}

// rounded up: a wait of a moment must not become none
static int shorter(int ms) { return ms <= 0 ? ms : (int)((ms + speed - 1) / speed); }

int epoll_wait(int file, struct epoll_event* events, int most, int ms) {
  REAL(epoll_wait)
  return real(file, events, most, shorter(ms));
}

int select(int n, fd_set* restrict r, fd_set* restrict w, fd_set* restrict e, struct timeval* restrict t) {
  REAL(select)
  if (!t) return real(n, r, w, e, t);
  int64_t us = (int64_t)((t->tv_sec * 1000000LL + t->tv_usec) / speed);
  struct timeval d = {us / 1000000, us % 1000000};
  return real(n, r, w, e, &d);
}

int sigtimedwait(const sigset_t* restrict set, siginfo_t* restrict info, const struct timespec* restrict t) {
  REAL(sigtimedwait)
  if (!t) return real(set, info, t);
  struct timespec d = spec_of((int64_t)(ns_of(t) / speed));
  return real(set, info, &d);
}
