/* Notes each launch of a kernel by CUPTI's callbacks, and has launches wait while counters begin or are taken.
 *
 * Ranges of the range profiler have no correlation ids, so the n-th range is the n-th launch of its context.
 * CUPTI calls back on the program's threads, inside CUDA calls; no lock of Python's is taken here. The first
 * launch of a context waits until Python has begun to count there, and after each `cycle` launches the next one
 * waits until Python has taken the counters out, as the room for them is small. No other launch of the context
 * is under way meanwhile. A launch waits at most as long as `opscope_counters_begin` was told: less if its
 * thread holds Python's lock, which the thread that counts needs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define CONTEXTS 64
#define LATE 4
#define MOST_TEXT 32768 /* bytes of a kernel's name; the rest is cut */

/* A launch; `call`: domain << 24 | number of the call. Layout: launches.py. */
struct launch {
  uint64_t start, end, context;
  uint32_t thread, correlation, call, name;
};

/* CUpti_CallbackData, the same in all versions since CUDA 4. */
struct called {
  int site; /* 0: the call begins, 1: it has ended */
  const char* function;
  const void* params;
  void* result;
  const char* symbol;
  void* context;
  uint32_t context_uid;
  uint64_t* data;
  uint32_t correlation;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t asked, answered;
static struct launch* launches;
static uint64_t held, room, most, lost, late, full;
static char** names;
static uint32_t *slots, names_held, names_room;
static struct {
  uint64_t context;
  int state; /* 1: asked for, 2: told to Python, 3: answered; LATE: nobody waits for the answer */
  int begun; /* it was answered once */
  int tired; /* a launch waited in vain: no later one waits for counters to be taken out */
  uint32_t inside; /* launches that are under way */
  uint64_t launched; /* since the last answer */
} contexts[CONTEXTS];
static uint32_t contexts_held;
static uint64_t patience, free_patience, cycle;
static int (*holds_lock)(void); /* PyGILState_Check */
static int running, forks;
static uint32_t sessions;
static __thread int entered = -1; /* the place in `contexts` of the launch under way */
static __thread int depth;
static __thread uint32_t noted; /* the session that `depth` is of */
static __thread uint64_t began;

static uint64_t now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static int wait_on(pthread_cond_t* one, uint64_t until) {
  struct timespec at = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
  return pthread_cond_timedwait(one, &lock, &at);
}

static uint32_t hash_of(const char* text, size_t many) {
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < many; i++) hash = (hash ^ (unsigned char)text[i]) * 16777619u;
  return hash;
}

static int grow_names(void) {
  uint32_t wider = names_room ? 2 * names_room : 1024;
  uint32_t* fresh = calloc(wider, sizeof *fresh);
  char** more = fresh ? realloc(names, (wider / 2) * sizeof *names) : NULL;
  if (!more) {
    free(fresh);
    return 0;
  }
  names = more;
  for (uint32_t i = 0; i < names_held; i++) {
    uint32_t at = hash_of(names[i], strlen(names[i])) & (wider - 1);
    while (fresh[at]) at = (at + 1) & (wider - 1);
    fresh[at] = i + 1;
  }
  free(slots);
  slots = fresh;
  names_room = wider;
  return 1;
}

/* The number of a text, from 1 on; 0 without one. CUPTI's own text may go, so it is copied once. */
static uint32_t number_of(const char* text) {
  if (!text || (2 * (names_held + 1) > names_room && !grow_names())) return 0;
  size_t many = strnlen(text, MOST_TEXT);
  uint32_t at = hash_of(text, many) & (names_room - 1);
  for (; slots[at]; at = (at + 1) & (names_room - 1)) {
    const char* known = names[slots[at] - 1];
    if (!strncmp(known, text, many) && !known[many]) return slots[at];
  }
  char* copy = strndup(text, many);
  if (!copy) return 0;
  names[names_held++] = copy;
  return slots[at] = names_held;
}

/* Wait until Python counts in this context, or has said that it cannot; return the context's place, else -1. */
static int await(uint64_t context) {
  uint32_t i = 0;
  while (i < contexts_held && contexts[i].context != context) i++;
  if (i == CONTEXTS) return -1;
  if (i == contexts_held) {
    memset(&contexts[i], 0, sizeof contexts[i]);
    contexts[i].context = context;
    contexts[contexts_held++].state = 1;
    pthread_cond_broadcast(&asked);
  } else if (cycle && contexts[i].state == 3 && contexts[i].launched >= cycle && !contexts[i].tired) {
    contexts[i].state = 1;
    pthread_cond_broadcast(&asked);
  }
  if (contexts[i].state < 3) {
    uint64_t until = now() + (holds_lock && !holds_lock() ? free_patience : patience);
    uint32_t session = sessions;
    while (running && session == sessions && contexts[i].state < 3)
      if (wait_on(&answered, until) == ETIMEDOUT && session == sessions && contexts[i].state < 3) {
        if (contexts[i].begun)
          full++;
        else
          late++;
        contexts[i].tired = 1;
        contexts[i].state |= LATE; /* no launch waits again */
      }
    if (!running || session != sessions) return -1;
  }
  contexts[i].inside++;
  contexts[i].launched++;
  return (int)i;
}

/* The subscriber's callback, for the calls that launch. */
API void opscope_counters_called(void* user, int domain, uint32_t number, const void* data) {
  const struct called* call = data;
  (void)user;
  if (!call || (domain != 1 && domain != 2)) return;
  if (call->site == 0) {
    if (noted != sessions) noted = sessions, depth = 0; /* the last one ended within a call */
    if (depth++) return; /* the runtime's launch calls the driver's */
    pthread_mutex_lock(&lock);
    entered = running && call->context ? await((uint64_t)(uintptr_t)call->context) : -1;
    pthread_mutex_unlock(&lock);
    began = now();
    return;
  }
  if (noted != sessions || !depth || --depth) return;
  int failed = 0;
  if (call->result) memcpy(&failed, call->result, sizeof failed);
  struct launch one = {began, now(), (uint64_t)(uintptr_t)call->context, (uint32_t)syscall(SYS_gettid),
      call->correlation, (uint32_t)domain << 24 | number, 0};
  pthread_mutex_lock(&lock);
  if (entered >= 0 && noted == sessions && !--contexts[entered].inside) pthread_cond_broadcast(&asked);
  if (running && !failed) {
    if (held == room && held < most) {
      uint64_t wider = room ? 2 * room : 1024;
      struct launch* more = realloc(launches, wider * sizeof *more);
      if (more) launches = more, room = wider;
    }
    if (held < room && held < most) {
      one.name = number_of(call->symbol);
      launches[held++] = one;
    } else {
      lost++;
    }
  }
  pthread_mutex_unlock(&lock);
}

/* --------------------------------------------------------------------------------- called by Python */

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void in_parent(void) { pthread_mutex_unlock(&lock); }
static void in_child(void) {
  running = 0;
  pthread_mutex_unlock(&lock);
}

/* Begin to note launches, at most `launches_`. One that must wait does so at most `milliseconds` in a thread that
 * holds Python's lock, `freely` in another. `cycle_`: the launches after which counters are taken out. */
API int opscope_counters_begin(uint64_t launches_, uint32_t milliseconds, uint32_t freely, uint64_t cycle_) {
  pthread_condattr_t steady;
  int error = 0;
  pthread_mutex_lock(&lock);
  if (running) error = EBUSY;
  if (!error && !forks) {
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&asked, &steady);
    pthread_cond_init(&answered, &steady);
    error = pthread_atfork(before_fork, in_parent, in_child);
    if (!error) forks = 1;
  }
  if (!error) {
    held = lost = late = full = 0;
    contexts_held = 0;
    sessions++;
    most = launches_;
    patience = 1000000u * (uint64_t)milliseconds;
    free_patience = 1000000u * (uint64_t)freely;
    cycle = cycle_;
    *(void**)&holds_lock = dlsym(RTLD_DEFAULT, "PyGILState_Check");
    running = 1;
  }
  pthread_mutex_unlock(&lock);
  return error;
}

/* Return a context of which a launch waits and none is under way; 0 if there is none within the time, 1 once it
 * has ended. */
API uint64_t opscope_counters_asked(uint32_t milliseconds) {
  uint64_t until = now() + 1000000u * (uint64_t)milliseconds, found = 0;
  pthread_mutex_lock(&lock);
  do {
    for (uint32_t i = 0; i < contexts_held && !found; i++)
      if ((contexts[i].state & ~LATE) == 1 && !contexts[i].inside) {
        contexts[i].state = (contexts[i].state & LATE) | 2;
        found = contexts[i].context;
      }
  } while (running && !found && wait_on(&asked, until) != ETIMEDOUT);
  if (!running) found = 1;
  pthread_mutex_unlock(&lock);
  return found;
}

/* Let the launches of a context go on. */
API void opscope_counters_answer(uint64_t context) {
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < contexts_held; i++)
    if (contexts[i].context == context)
      contexts[i].state = 3, contexts[i].launched = 0, contexts[i].begun = 1;
  pthread_cond_broadcast(&answered);
  pthread_mutex_unlock(&lock);
}

/* Take no more notes; what is noted stays until the next begin. */
API void opscope_counters_end(void) {
  pthread_mutex_lock(&lock);
  running = 0;
  if (forks) {
    pthread_cond_broadcast(&asked);
    pthread_cond_broadcast(&answered);
  }
  pthread_mutex_unlock(&lock);
}

/* Write counts: launches noted, launches without room, contexts in which a launch did not wait until counting
 * began, and until counters were taken out. */
API void opscope_counters_counts(uint64_t* to) {
  pthread_mutex_lock(&lock);
  to[0] = held, to[1] = lost, to[2] = late, to[3] = full;
  pthread_mutex_unlock(&lock);
}

API uint64_t opscope_counters_take(struct launch* to, uint64_t many) {
  pthread_mutex_lock(&lock);
  if (many > held) many = held;
  if (many) memcpy(to, launches, many * sizeof *to);
  pthread_mutex_unlock(&lock);
  return many;
}

/* The text of a number, which stays as long as the process. */
API const char* opscope_counters_name(uint32_t number) {
  pthread_mutex_lock(&lock);
  const char* found = number && number <= names_held ? names[number - 1] : NULL;
  pthread_mutex_unlock(&lock);
  return found;
}
