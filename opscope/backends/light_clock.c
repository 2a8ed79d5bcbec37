/* Light mode's clock as built-in functions of Python: what core/capture/light.py does, at a fifth of its cost.
 *
 * While a model runs, its data fills the CPU's caches, so each Python object that a hook touches costs a cache
 * miss. Here a hook touches one structure of a few cache lines. All functions run under the GIL, so nothing is
 * locked; a Python without a GIL uses the Python clock. Only functions of CPython's stable ABI are called, and
 * none of its headers are needed, so one library serves all versions.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

#define API __attribute__((visibility("default")))

/* core/light_format.py and core/capture/light.py have these too. */
#define PHASES 6
#define FORWARD 1
#define BACKWARD 2
#define OPTIMIZER 3
#define OTHER 5
#define STEP 0
#define FULL 1
#define WIDTH 10
#define AWAY (-1)
#define ONE_IN 64
#define FIRST 16
#define MAX_WAITING (16 << 20)
#define KEPT 512
/* of light_clock.py */
#define ABI 1

#define FIRST_ROOM (64 << 10)

typedef struct object PyObject;
typedef PyObject* (*PyCFunction)(PyObject*, PyObject*);
typedef struct {
  const char* name;
  PyCFunction function;
  int flags;
  const char* doc;
} PyMethodDef;
#define NO_ARGUMENT 0x04
#define ONE_ARGUMENT 0x08

PyObject* PyBytes_FromStringAndSize(const char*, ssize_t);
PyObject* PyCFunction_NewEx(PyMethodDef*, PyObject*, PyObject*);
PyObject* PyCapsule_New(void*, const char*, void (*)(PyObject*));
void* PyCapsule_GetPointer(PyObject*, const char*);
void PyErr_Clear(void);
PyObject* PyErr_Occurred(void);
void PyErr_WriteUnraisable(PyObject*);
int PyGILState_Ensure(void);
void PyGILState_Release(int);
PyObject* PyLong_FromLong(long);
PyObject* PyLong_FromLongLong(long long);
long PyLong_AsLong(PyObject*);
long long PyLong_AsLongLongAndOverflow(PyObject*, int*);
PyObject* PyObject_CallFunctionObjArgs(PyObject*, ...);
int PyObject_IsTrue(PyObject*);
void Py_DecRef(PyObject*);
void Py_IncRef(PyObject*);
extern PyObject _Py_NoneStruct, _Py_TrueStruct, _Py_FalseStruct;

/* What every hook reads comes first. Python reads and writes it by the same layout (``_State``). */
struct clock {
  int64_t thread; /* whose steps are measured; 0: none has any yet */
  int64_t phase, at, measures;
  int64_t times[PHASES];
  int64_t open, begin, number, began_full;
  int64_t limit, late, full, places;
  int64_t own, since, calls;
  int64_t count, total, measured_calls, measured_turns, dropped;
  char* log;
  int64_t used, room;
  PyObject *adopts, *tells;
  int64_t recent[KEPT]; /* the cost of the latest steps that measured themselves */
};

#ifdef OPSCOPE_TEST
static int64_t time_of_test;
API void opscope_light_time(int64_t ns) { time_of_test = ns; }
static int64_t now(void) { return time_of_test; }
#else
static inline int64_t now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at); /* as time.perf_counter_ns */
  return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}
#endif

static inline int64_t here(void) { return (int64_t)pthread_self(); }

static inline struct clock* of(PyObject* self) { return PyCapsule_GetPointer(self, NULL); }

static inline PyObject* answer(PyObject* constant) {
  Py_IncRef(constant);
  return constant;
}

/* A step's number; one of more than 64 bits becomes the nearest that fits. */
static int64_t number_of(PyObject* value) {
  int over = 0;
  long long number = PyLong_AsLongLongAndOverflow(value, &over);
  if (over) return over > 0 ? INT64_MAX : INT64_MIN;
  if (number == -1 && PyErr_Occurred()) PyErr_Clear();
  return number;
}

/* ------------------------------------------------------------------------------------------- phases */

static inline void measured(struct clock* c, int64_t begin) {
  c->calls++;
  c->own += now() - begin;
}

/* Begins ``phase``; returns the one that was open. */
static inline int64_t entered(struct clock* c, int64_t phase) {
  int64_t time = now(), before = c->phase;
  int forward = phase == BACKWARD && (before == OTHER || before == OPTIMIZER);
  c->times[forward ? FORWARD : before] += time - c->at;
  c->phase = phase;
  c->at = time;
  c->since = 0;
  if (__builtin_expect(c->measures != 0, 0)) measured(c, time);
  return before;
}

static inline void left(struct clock* c, int64_t before) {
  int64_t time = now();
  c->times[c->phase] += time - c->at;
  c->phase = before;
  c->at = time;
  c->since = 0;
  if (__builtin_expect(c->measures != 0, 0)) measured(c, time);
}

static PyObject* enter(PyObject* self, PyObject* phase) {
  struct clock* c = of(self);
  if (here() != c->thread) return PyLong_FromLong(AWAY);
  return PyLong_FromLong(entered(c, PyLong_AsLong(phase)));
}

static PyObject* leave(PyObject* self, PyObject* before) {
  long phase = PyLong_AsLong(before);
  if (phase >= 0) left(of(self), phase);
  return answer(&_Py_NoneStruct);
}

static PyObject* optimizes(PyObject* self, PyObject* none) {
  struct clock* c = of(self);
  if (here() == c->thread) entered(c, OPTIMIZER);
  return answer(&_Py_NoneStruct);
}

static PyObject* optimized(PyObject* self, PyObject* none) {
  struct clock* c = of(self);
  if (here() != c->thread) return answer(&_Py_NoneStruct);
  if (c->phase == OPTIMIZER) left(c, OTHER);
  if (c->measures) c->since = now();
  return answer(&_Py_NoneStruct);
}

/* -------------------------------------------------------------------------------------------- steps */

static void start(struct clock* c, int64_t time, int64_t number) {
  memset(c->times, 0, sizeof c->times);
  c->phase = OTHER;
  c->begin = c->at = time;
  c->number = number;
  c->own = c->since = 0;
  c->began_full = c->full;
  c->measures = !(c->places & (ONE_IN - 1)) || c->places < FIRST;
}

/* Makes room for a record. Where there is none, or nobody takes them, all that wait are dropped, and counted. */
static int roomy(struct clock* c) {
  const int64_t size = WIDTH * 8;
  if (c->used + size <= c->room) return 1;
  int64_t room = c->room ? 2 * c->room : FIRST_ROOM;
  char* grown = room <= MAX_WAITING ? realloc(c->log, (size_t)room) : NULL;
  if (grown) {
    c->log = grown;
    c->room = room;
  } else {
    c->dropped += c->used / size;
    c->used = 0;
  }
  return c->used + size <= c->room;
}

/* Tells Python that a step was slow (``took``), or that it was not after one that was (-1). */
static void tell(struct clock* c, int64_t took) {
  PyObject* tells = c->tells;
  if (!tells) return;
  PyObject *value = PyLong_FromLongLong(took), *done = NULL;
  Py_IncRef(tells);
  if (value) done = PyObject_CallFunctionObjArgs(tells, value, NULL);
  if (!done) PyErr_WriteUnraisable(tells); /* our fault must never reach the user's program */
  if (value) Py_DecRef(value);
  if (done) Py_DecRef(done);
  Py_DecRef(tells);
}

static void end(struct clock* c, int64_t time) {
  c->times[c->phase] += time - c->at;
  int64_t took = time - c->begin, place = c->places++, full = c->full || c->began_full;
  if (roomy(c)) {
    int64_t record[WIDTH] = {place, full ? FULL : STEP, c->number, c->begin, took};
    memcpy(record + 5, c->times, 5 * sizeof *record);
    memcpy(c->log + c->used, record, sizeof record);
    c->used += sizeof record;
  } else {
    c->dropped++;
  }
  if (took > c->limit) {
    c->late = 1;
    tell(c, took);
  } else if (c->late) {
    c->late = 0;
    tell(c, -1);
  }
  if (c->measures) {
    int64_t own = c->own + now() - time;
    if (c->since) {
      own += time - c->since;
      c->calls++;
    }
    if (!full) {
      c->recent[c->count++ % KEPT] = own;
      c->total += own;
      c->measured_calls += c->calls;
      c->measured_turns += !c->since;
    }
    c->calls = 0;
  }
}

static PyObject* begins(PyObject* self, PyObject* number) {
  struct clock* c = of(self);
  if (here() != c->thread) { /* Python decides whether this thread is measured from now on */
    PyObject* done = c->adopts ? PyObject_CallFunctionObjArgs(c->adopts, NULL) : NULL;
    int yes = done ? PyObject_IsTrue(done) : 0;
    if (!done && c->adopts) PyErr_WriteUnraisable(c->adopts);
    if (done) Py_DecRef(done);
    if (yes != 1) return answer(&_Py_NoneStruct);
    c->thread = here();
  }
  c->open = 1;
  start(c, now(), number_of(number));
  return answer(&_Py_NoneStruct);
}

/* As ``turns``, from the hook that has called ``optimized``: the way from there is opscope's own cost. */
static PyObject* turns_after(PyObject* self, PyObject* number) {
  struct clock* c = of(self);
  if (!c->open || here() != c->thread) return begins(self, number);
  int64_t time = now();
  end(c, time);
  start(c, time, number_of(number));
  return answer(&_Py_NoneStruct);
}

static PyObject* turns(PyObject* self, PyObject* number) {
  of(self)->since = 0;
  return turns_after(self, number);
}

static PyObject* ends(PyObject* self, PyObject* none) {
  struct clock* c = of(self);
  if (c->open && here() == c->thread) {
    int64_t time = now();
    c->since = 0;
    end(c, time);
    c->open = 0;
    /* what comes before the next step is in none: its hooks add to phases that ``start`` clears */
    c->phase = OTHER;
    c->at = time;
    c->measures = 0;
  }
  return answer(&_Py_NoneStruct);
}

static PyObject* is_here(PyObject* self, PyObject* none) {
  struct clock* c = of(self);
  return answer(c->open && here() == c->thread ? &_Py_TrueStruct : &_Py_FalseStruct);
}

static PyObject* leaves(PyObject* self, PyObject* none) {
  struct clock* c = of(self);
  if (here() == c->thread) c->open = 0;
  return answer(&_Py_NoneStruct);
}

static PyObject* named(PyObject* self, PyObject* number) {
  struct clock* c = of(self);
  if (c->open && here() == c->thread) c->number = number_of(number);
  return answer(&_Py_NoneStruct);
}

static PyObject* take(PyObject* self, PyObject* none) {
  struct clock* c = of(self);
  PyObject* taken = PyBytes_FromStringAndSize(c->log, c->used);
  if (taken) c->used = 0;
  return taken;
}

static PyMethodDef builtins[] = {
    {"enter", enter, ONE_ARGUMENT, NULL},
    {"leave", leave, ONE_ARGUMENT, NULL},
    {"optimizes", optimizes, NO_ARGUMENT, NULL},
    {"optimized", optimized, NO_ARGUMENT, NULL},
    {"begins", begins, ONE_ARGUMENT, NULL},
    {"turns", turns, ONE_ARGUMENT, NULL},
    {"turns_after", turns_after, ONE_ARGUMENT, NULL},
    {"ends", ends, NO_ARGUMENT, NULL},
    {"here", is_here, NO_ARGUMENT, NULL},
    {"left", leaves, NO_ARGUMENT, NULL},
    {"named", named, ONE_ARGUMENT, NULL},
    {"take", take, NO_ARGUMENT, NULL},
};

/* ------------------------------------------------------------------------------- for light_clock.py */

static void gone(PyObject* capsule) {
  struct clock* c = PyCapsule_GetPointer(capsule, NULL);
  if (!c) return;
  if (c->adopts) Py_DecRef(c->adopts);
  if (c->tells) Py_DecRef(c->tells);
  free(c->log);
  free(c);
}

API int opscope_light_abi(void) { return ABI; }
API int64_t opscope_light_size(void) { return sizeof(struct clock); }

/* Returns a new clock, as a capsule that frees it; null where there is no memory. */
API PyObject* opscope_light_clock(PyObject* adopts, PyObject* tells) {
  struct clock* c = calloc(1, sizeof *c);
  if (!c) return NULL;
  int gil = PyGILState_Ensure();
  c->phase = OTHER;
  c->limit = INT64_MAX;
  PyObject* made = PyCapsule_New(c, NULL, gone);
  if (made) {
    Py_IncRef(c->adopts = adopts);
    Py_IncRef(c->tells = tells);
  } else {
    free(c);
  }
  PyGILState_Release(gil);
  return made;
}

API void* opscope_light_state(PyObject* capsule) {
  int gil = PyGILState_Ensure();
  void* state = of(capsule);
  PyGILState_Release(gil);
  return state;
}

/* Returns the built-in function with this name, bound to a clock; null where there is none. */
API PyObject* opscope_light_function(PyObject* capsule, const char* name) {
  for (size_t i = 0; i < sizeof builtins / sizeof *builtins; i++)
    if (!strcmp(builtins[i].name, name)) {
      int gil = PyGILState_Ensure();
      PyObject* made = PyCFunction_NewEx(&builtins[i], capsule, NULL);
      PyGILState_Release(gil);
      return made;
    }
  return NULL;
}
