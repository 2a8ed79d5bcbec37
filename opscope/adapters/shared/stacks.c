/* Samples the Python stacks of some threads on a thread of its own: what core/capture/host_stacks.py writes.
 *
 * Frames are read under the GIL alone, by functions of CPython that exist from 3.10 to 3.14; none of its headers
 * are needed, so one library serves all versions. A main thread that runs Python takes its own sample, as a
 * pending call, at its next bytecode that may be interrupted: nothing changes hands, and the line is right. If it
 * has not until the next look, it waits or is in C. Then the sampler reads it, as it reads all other threads: it
 * waits for the GIL. A thread whose processor time has not changed since its last sample is where it was, and
 * costs no GIL.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
/* of native_stacks.py */
#define ABI 1

#define MAX_DEPTH 512
#define MAX_CODES (1 << 15)
#define MAX_NODES (1 << 17)
#define MAX_THREADS 1024
#define MAX_UNWRITTEN (1 << 16)
/* Taking the GIL from a thread costs it about this much beside the time for which it is kept. All costs are
 * processor time: on a busy machine the sampler itself waits for a processor, which no lower rate would mend. */
#define HANDOVER_NS 10000
#define SHORT_COLLECTION_NS 200000
#define RESOLVE_NS 1000000000

typedef struct object PyObject;
typedef struct thread_state PyThreadState;
typedef struct interpreter PyInterpreterState;
typedef PyObject* (*PyCFunction)(PyObject*, PyObject*);
typedef struct {
  const char* name;
  PyCFunction function;
  int flags;
  const char* doc;
} PyMethodDef;
#define ARGUMENTS 0x01

int Py_AddPendingCall(int (*)(void*), void*);
int PyCode_Addr2Line(PyObject*, int);
PyObject* PyBytes_FromStringAndSize(const char*, ssize_t);
PyObject* PyCFunction_NewEx(PyMethodDef*, PyObject*, PyObject*);
PyObject* PyDict_GetItemWithError(PyObject*, PyObject*);
void PyErr_Clear(void);
PyObject* PyEval_GetFrame(void);
void PyEval_RestoreThread(PyThreadState*);
PyThreadState* PyEval_SaveThread(void);
PyObject* PyFrame_GetBack(PyObject*);
PyObject* PyFrame_GetCode(PyObject*);
/* From Python 3.11 on. */
int PyFrame_GetLasti(PyObject*) __attribute__((weak));
int PyGC_Disable(void);
int PyGC_Enable(void);
int PyGILState_Ensure(void);
void PyGILState_Release(int);
PyInterpreterState* PyInterpreterState_Get(void);
PyThreadState* PyInterpreterState_ThreadHead(PyInterpreterState*);
int PyList_Append(PyObject*, PyObject*);
PyObject* PyList_New(ssize_t);
long PyLong_AsLong(PyObject*);
PyObject* PyLong_FromLong(long);
PyObject* PyLong_FromUnsignedLong(unsigned long);
PyObject* PyObject_CallObject(PyObject*, PyObject*);
PyObject* PyObject_GetAttrString(PyObject*, const char*);
PyObject* PyThreadState_GetFrame(PyThreadState*);
uint64_t PyThreadState_GetID(PyThreadState*);
PyThreadState* PyThreadState_Next(PyThreadState*);
PyObject* PyTuple_GetItem(PyObject*, ssize_t);
PyObject* PyTuple_Pack(ssize_t, ...);
int PyUnicode_CompareWithASCIIString(PyObject*, const char*);
void Py_DecRef(PyObject*);
void Py_IncRef(PyObject*);
extern PyObject _Py_NoneStruct;

/* core/recording_format.py has this too. */
struct record {
  int64_t start, end, cpu;
  int32_t thread, node, samples, kind;
};
#define SAMPLE 0
#define COLLECTION 1

struct node {
  int32_t parent, code, at, line;
  int32_t is_leaf;
};

struct thread {
  uint64_t ident;
  int32_t native;
  int is_main;
  /* The thread's state in Python, if known: looked up in the list of all before each use. */
  PyThreadState* state;
  uint64_t state_id;
  int64_t looked_up;
  /* The sample that lasts, if ``samples``: since when, the last time, and how long the thread had run, or had
   * been ready to run, as it began. */
  int64_t start, last, ready_before;
  /* Its processor time, and the time that it ran or was ready, as it was last looked at. */
  int64_t cpu, ready, queued, seen;
  /* When it was asked where it is, and for how long it had run or been ready by then. */
  int64_t asked, asked_ready;
  int32_t node, samples;
  int wanted;
};

/* Under the GIL. */
static PyObject* codes[MAX_CODES];
static int32_t code_slots[MAX_CODES * 2];
static int32_t code_count;
static struct node* nodes;
static int32_t* node_slots;
static int32_t node_count, nodes_told;
static int32_t* new_leaves;
static int32_t new_leaf_count;
static PyObject* current_frames;
static int64_t collection_began;

/* Under ``data``. */
static pthread_mutex_t data = PTHREAD_MUTEX_INITIALIZER;
static struct thread threads[MAX_THREADS];
static int thread_count;
static struct record* records;
static int32_t record_count;
static int64_t dropped, looks, spent, base_period, period, longest_period, samples_taken;
/* How long the threads have run of late, how long they would have with processors of their own, and how much time
 * passed: samples may cost a part of what the program gets, not of the time that passes. */
static int64_t ran_ns, wanted_ns, passed_ns, last_look;
/* What a look costs, of late: kept while the sampler pauses. */
static int64_t cost;
/* What all may cost is 1 / share of the time. */
static int64_t share;

static pthread_t sampler;
static pid_t sampler_process;
static int runs;
static pthread_mutex_t waking = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake;
static atomic_int ended, wanted, outstanding;
static _Atomic int64_t answer_ns;

static int64_t now(clockid_t clock) {
  struct timespec time;
  if (clock_gettime(clock, &time)) return -1;
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* The processor time of a thread by its number; -1 once it has ended. */
static int64_t cpu_of(int32_t native) { return now((clockid_t)((~(unsigned)native << 3) | 6)); }

/* The time that a thread was ready to run and had no processor; 0 where the system does not tell. The file is
 * not kept open: a program may close descriptors that it did not open. */
static int64_t waited_for_processor(int32_t native) {
  char text[96];
  snprintf(text, sizeof text, "/proc/self/task/%d/schedstat", native);
  int file = open(text, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  ssize_t size = read(file, text, sizeof text - 1);
  close(file);
  if (size <= 0) return 0;
  text[size] = 0;
  char* rest = NULL;
  strtoll(text, &rest, 10);
  return rest == text ? 0 : strtoll(rest, NULL, 10);
}

/* ---------------------------------------------------------------- interning, under the GIL */

static uint32_t mixed(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ (b * 0x9e3779b97f4a7c15u)) * 0xff51afd7ed558ccdu;
  return (uint32_t)(x ^ (x >> 32));
}

/* The number of a code object, whose reference is taken over; -1 if there are too many. */
static int32_t code_number(PyObject* code) {
  uint32_t slot = mixed((uintptr_t)code >> 4, 1) & (MAX_CODES * 2 - 1);
  while (code_slots[slot]) {
    int32_t number = code_slots[slot] - 1;
    if (codes[number] == code) {
      Py_DecRef(code);
      return number;
    }
    slot = (slot + 1) & (MAX_CODES * 2 - 1);
  }
  if (code_count >= MAX_CODES - 1) {
    Py_DecRef(code);
    return -1;
  }
  codes[code_count] = code;
  code_slots[slot] = ++code_count;
  return code_count - 1;
}

static int32_t child(int32_t parent, int32_t code, int32_t at) {
  uint32_t slot = mixed(((uint64_t)parent << 32) | (uint32_t)code, at + 7) & (MAX_NODES * 2 - 1);
  while (node_slots[slot]) {
    int32_t number = node_slots[slot] - 1;
    struct node* node = nodes + number;
    if (node->parent == parent && node->code == code && node->at == at) return number;
    slot = (slot + 1) & (MAX_NODES * 2 - 1);
  }
  if (node_count >= MAX_NODES - 1) return -1;
  struct node node = {parent, code, at, PyCode_Addr2Line(codes[code], at), 0};
  nodes[node_count] = node;
  node_slots[slot] = ++node_count;
  return node_count - 1;
}

static int32_t at_of(PyObject* frame) {
  if (PyFrame_GetLasti) return PyFrame_GetLasti(frame);
  PyObject* number = PyObject_GetAttrString(frame, "f_lasti");
  if (!number) {
    PyErr_Clear();
    return -1;
  }
  int32_t at = (int32_t)PyLong_AsLong(number);
  Py_DecRef(number);
  return at;
}

/* The node of the stack whose innermost frame is ``frame``, a reference that is taken over; -1 for none. */
static int32_t stack_of(PyObject* frame) {
  int32_t code[MAX_DEPTH], at[MAX_DEPTH];
  int depth = 0;
  while (frame && depth < MAX_DEPTH) {
    at[depth] = at_of(frame);
    code[depth] = code_number(PyFrame_GetCode(frame));
    if (code[depth] >= 0) depth++;
    PyObject* back = PyFrame_GetBack(frame);
    Py_DecRef(frame);
    frame = back;
  }
  if (frame) Py_DecRef(frame);
  int32_t node = -1;
  while (depth--) {
    int32_t next = child(node, code[depth], at[depth]);
    if (next < 0) break;
    node = next;
  }
  if (node >= 0 && !nodes[node].is_leaf) {
    nodes[node].is_leaf = 1;
    new_leaves[new_leaf_count++] = node;
  }
  return node;
}

/* ---------------------------------------------------------------- records, under ``data`` */

static void keep(struct record record) {
  if (record_count >= MAX_UNWRITTEN) {
    dropped++;
    return;
  }
  records[record_count++] = record;
}

static void close_sample(struct thread* thread, int64_t end, int64_t ready) {
  if (thread->samples && end > thread->start) {
    struct record record = {thread->start, end, ready - thread->ready_before, thread->native, thread->node,
        thread->samples, SAMPLE};
    keep(record);
  }
  thread->samples = 0;
}

/* The thread was at ``node`` when it was asked, and had run since it was asked before. */
static void add_sample(struct thread* thread, int32_t node) {
  close_sample(thread, thread->asked, thread->asked_ready);
  thread->start = thread->last = thread->asked;
  thread->ready_before = thread->asked_ready;
  thread->node = node;
  thread->samples = 1;
  samples_taken++;
}

/* ---------------------------------------------------------------- the main thread's own sample */

static int answer(void* nothing) {
  (void)nothing;
  atomic_store(&outstanding, 0);
  if (!atomic_exchange(&wanted, 0)) return 0;
  int64_t begin = now(CLOCK_THREAD_CPUTIME_ID);
  int collects = PyGC_Disable();
  PyObject* frame = PyEval_GetFrame();
  if (frame) Py_IncRef(frame);
  int32_t node = stack_of(frame);
  if (collects) PyGC_Enable();
  pthread_mutex_lock(&data);
  for (int i = 0; i < thread_count; i++)
    if (threads[i].is_main) add_sample(threads + i, node);
  pthread_mutex_unlock(&data);
  atomic_store(&answer_ns, now(CLOCK_THREAD_CPUTIME_ID) - begin);
  return 0;
}

/* ---------------------------------------------------------------- the sampler's thread */

/* Find which states in Python are those of the threads that are wanted; sys._current_frames tells idents. */
static void look_up(int64_t time) {
  int due = 0;
  for (int i = 0; i < thread_count; i++)
    due |= threads[i].wanted && !threads[i].state && time - threads[i].looked_up > RESOLVE_NS;
  if (!due) return;
  PyObject* frames = PyObject_CallObject(current_frames, NULL);
  if (!frames) {
    PyErr_Clear();
    return;
  }
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  for (int i = 0; i < thread_count; i++) {
    struct thread* thread = threads + i;
    if (thread->state) continue;
    thread->looked_up = time;
    PyObject* ident = PyLong_FromUnsignedLong(thread->ident);
    PyObject* frame = ident ? PyDict_GetItemWithError(frames, ident) : NULL;
    if (ident) Py_DecRef(ident);
    if (!frame) continue;
    PyThreadState* state = PyInterpreterState_ThreadHead(interpreter);
    for (; state && !thread->state; state = PyThreadState_Next(state)) {
      PyObject* innermost = PyThreadState_GetFrame(state);
      if (innermost == frame) {
        thread->state = state;
        thread->state_id = PyThreadState_GetID(state);
      }
      if (innermost) Py_DecRef(innermost);
    }
  }
  PyErr_Clear();
  Py_DecRef(frames);
}

/* Sample the threads that are wanted. Under the GIL, so ``threads`` grows and shrinks on this thread alone. */
static void sample_all(int64_t time) {
  int collects = PyGC_Disable();
  look_up(time);
  PyThreadState* state = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
  for (; state; state = PyThreadState_Next(state)) {
    for (int i = 0; i < thread_count; i++) {
      struct thread* thread = threads + i;
      if (thread->wanted != 1 || thread->state != state) continue;
      thread->wanted = 2;
      if (PyThreadState_GetID(state) != thread->state_id) {
        thread->state = NULL; /* another thread's, at the same address */
        continue;
      }
      int32_t node = stack_of(PyThreadState_GetFrame(state));
      pthread_mutex_lock(&data);
      add_sample(thread, node);
      pthread_mutex_unlock(&data);
    }
  }
  for (int i = 0; i < thread_count; i++)
    if (threads[i].wanted == 1) threads[i].state = NULL; /* its state is gone, or was never found */
  if (collects) PyGC_Enable();
}

/* Ask for a sample as of now. The scheduler's file costs more than all else, so it is read only of a thread that
 * had a processor for less than half of the time. */
static void ask(struct thread* thread, int64_t asked, int64_t cpu) {
  int64_t ran = cpu - thread->cpu, waited = asked - thread->seen - ran;
  thread->ready += ran;
  if (ran < waited) {
    int64_t queued = waited_for_processor(thread->native);
    waited = thread->queued ? queued - thread->queued : 0;
    thread->ready += waited;
    thread->queued = queued;
  }
  if (thread->seen) ran_ns += ran, wanted_ns += ran + (waited > 0 ? waited : 0);
  thread->cpu = cpu;
  thread->seen = thread->asked = asked;
  thread->asked_ready = thread->ready;
}

/* Look at the clocks of all threads; return how many the sampler must read, and set whether the main thread is to
 * take its own sample. ``unanswered``: it has not done so since the last look. */
static int look(int64_t time, int unanswered, int* ask_main) {
  int count = 0;
  *ask_main = 0;
  for (int i = 0; i < thread_count; i++) {
    struct thread* thread = threads + i;
    int64_t cpu = cpu_of(thread->native);
    thread->wanted = 0;
    if (cpu < 0) {
      close_sample(thread, time, thread->ready);
      threads[i--] = threads[--thread_count];
    } else if (thread->is_main && unanswered) {
      thread->wanted = 1; /* as of the time when it was asked */
      count++;
    } else if (thread->samples && cpu == thread->cpu) {
      thread->samples++;
      thread->last = thread->seen = time;
      samples_taken++;
    } else {
      ask(thread, time, cpu);
      if (thread->is_main) {
        *ask_main = 1;
      } else {
        thread->wanted = 1;
        count++;
      }
    }
  }
  return count;
}

static void wait_until(int64_t time) {
  struct timespec until = {time / 1000000000, time % 1000000000};
  pthread_mutex_lock(&waking);
  while (!atomic_load(&ended) && pthread_cond_timedwait(&wake, &waking, &until) != ETIMEDOUT);
  pthread_mutex_unlock(&waking);
}

static void* work(void* nothing) {
  (void)nothing;
  int gil = PyGILState_Ensure();
  PyThreadState* mine = PyEval_SaveThread();
  uint32_t random = 2463534242u;
  int64_t due = now(CLOCK_MONOTONIC) + period / 2;
  int64_t used = now(CLOCK_THREAD_CPUTIME_ID);
  for (;;) {
    wait_until(due);
    if (atomic_load(&ended)) break;
    int64_t time = now(CLOCK_MONOTONIC), kept = atomic_exchange(&answer_ns, 0);
    int ask_main, unanswered = atomic_exchange(&wanted, 0);
    pthread_mutex_lock(&data);
    int count = look(time, unanswered, &ask_main);
    if (last_look) passed_ns += time - last_look;
    last_look = time;
    pthread_mutex_unlock(&data);
    if (ask_main) {
      atomic_store(&wanted, 1);
      if (!atomic_exchange(&outstanding, 1) && Py_AddPendingCall(answer, NULL)) atomic_store(&outstanding, 0);
    }
    if (count) {
      PyEval_RestoreThread(mine);
      if (!atomic_load(&ended)) sample_all(time);
      kept += HANDOVER_NS;
      PyEval_SaveThread();
    }
    int64_t then = used;
    used = now(CLOCK_THREAD_CPUTIME_ID);
    int64_t took = kept + used - then;
    cost += (took - cost) / 8;
    pthread_mutex_lock(&data);
    looks++;
    spent += took;
    int64_t dear = cost * share;
    /* of threads that wait for each other, as for the GIL, one would run at a time */
    int64_t would = wanted_ns < passed_ns ? wanted_ns : passed_ns;
    if (would > ran_ns && ran_ns > 0) dear = dear * (would / (ran_ns / 16 + 1) + 1) / 16;
    ran_ns -= ran_ns / 16, wanted_ns -= wanted_ns / 16, passed_ns -= passed_ns / 16;
    period = dear > base_period ? dear : base_period;
    if (period > longest_period) longest_period = period;
    pthread_mutex_unlock(&data);
    random ^= random << 13, random ^= random >> 17, random ^= random << 5;
    /* an even pace could keep step with the program's own */
    due = now(CLOCK_MONOTONIC) + period / 4 * 3 + (int64_t)(random % 1024) * (period / 2) / 1024;
  }
  pthread_mutex_lock(&data);
  for (int i = 0; i < thread_count; i++) close_sample(threads + i, now(CLOCK_MONOTONIC), threads[i].ready);
  pthread_mutex_unlock(&data);
  PyEval_RestoreThread(mine);
  PyGILState_Release(gil);
  return NULL;
}

/* ---------------------------------------------------------------- what Python calls */

API int opscope_stacks_abi(void) { return ABI; }

/* Begin a recording: forget all of the one before. The sampler's thread does not run. Returns 0 if all is well. */
API int opscope_stacks_open(PyObject* frames_function, int64_t first_period, int64_t least_share) {
  if (runs && sampler_process == getpid()) return -1;
  int gil = PyGILState_Ensure();
  if (!nodes) {
    nodes = malloc(sizeof(struct node) * MAX_NODES);
    node_slots = malloc(sizeof(int32_t) * MAX_NODES * 2);
    new_leaves = malloc(sizeof(int32_t) * MAX_NODES);
    records = malloc(sizeof(struct record) * MAX_UNWRITTEN);
  }
  int is_well = nodes && node_slots && new_leaves && records;
  if (is_well) {
    while (code_count) Py_DecRef(codes[--code_count]);
    memset(code_slots, 0, sizeof code_slots);
    memset(node_slots, 0, sizeof(int32_t) * MAX_NODES * 2);
    node_count = nodes_told = new_leaf_count = record_count = thread_count = 0;
    dropped = looks = spent = longest_period = samples_taken = ran_ns = wanted_ns = passed_ns = last_look =
        cost = 0;
    base_period = period = first_period;
    share = least_share;
    pthread_mutex_init(&data, NULL);
    pthread_mutex_init(&waking, NULL);
    runs = 0;
    atomic_store(&outstanding, 0);
    atomic_store(&wanted, 0);
    if (!current_frames) {
      Py_IncRef(frames_function);
      current_frames = frames_function;
    }
  }
  PyGILState_Release(gil);
  return is_well ? 0 : -1;
}

/* Sample a thread from now on, by Python's ident and the system's number. */
API void opscope_stacks_thread(uint64_t ident, int32_t native, int is_main) {
  int gil = PyGILState_Ensure();
  pthread_mutex_lock(&data);
  int index = 0;
  while (index < thread_count && threads[index].ident != ident) index++;
  if (index < MAX_THREADS && (index == thread_count || threads[index].native != native)) {
    if (index == thread_count) thread_count++;
    memset(threads + index, 0, sizeof *threads);
    threads[index].ident = ident;
    threads[index].native = native;
    threads[index].is_main = is_main;
  }
  pthread_mutex_unlock(&data);
  PyGILState_Release(gil);
}

/* Start the thread, on which no signal of the program's is handled. Returns 0 if it runs. */
API int opscope_stacks_start(void) {
  if (runs && sampler_process == getpid()) return 0;
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&wake, &monotonic);
  pthread_condattr_destroy(&monotonic);
  atomic_store(&ended, 0);
  sigset_t all, before;
  sigfillset(&all);
  const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP};
  for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&all, faults[i]);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(&sampler, NULL, work, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (failed) return -1;
  runs = 1;
  sampler_process = getpid();
  return 0;
}

/* End the thread. The GIL is not held: the thread may need it to end. */
API void opscope_stacks_stop(void) {
  if (!runs || sampler_process != getpid()) return;
  pthread_mutex_lock(&waking);
  atomic_store(&ended, 1);
  pthread_cond_signal(&wake);
  pthread_mutex_unlock(&waking);
  pthread_join(sampler, NULL);
  atomic_store(&wanted, 0);
  runs = 0;
}

static PyObject* add(PyObject* list, PyObject* item) {
  if (item) {
    if (PyList_Append(list, item)) PyErr_Clear();
    Py_DecRef(item);
  } else {
    PyErr_Clear();
  }
  return list;
}

static PyObject* tuple_of(PyObject* code, int count, const int32_t* numbers) {
  PyObject* made[4] = {NULL};
  for (int i = 0; i < count; i++) made[i] = PyLong_FromLong(numbers[i]);
  PyObject* tuple = count == 4 ? PyTuple_Pack(5, made[0], made[1], code, made[2], made[3])
                               : PyTuple_Pack(3, made[0], code, made[1]);
  for (int i = 0; i < count; i++) Py_DecRef(made[i]);
  return tuple;
}

/* What is new: (records, [(node, parent, code, at, line)], [(node that is innermost, code, at)]). */
API PyObject* opscope_stacks_take(void) {
  int gil = PyGILState_Ensure();
  pthread_mutex_lock(&data);
  for (int i = 0; i < thread_count; i++) {
    struct thread* thread = threads + i; /* what lasts is written up to its last sample */
    if (thread->samples > 1) {
      struct thread rest = *thread;
      thread->samples--;
      close_sample(thread, thread->last, thread->ready);
      *thread = rest;
      thread->start = thread->last;
      thread->ready_before = thread->ready;
      thread->samples = 1;
    }
  }
  int32_t count = record_count;
  struct record* copy = malloc(sizeof(struct record) * (count ? count : 1));
  if (copy) memcpy(copy, records, sizeof(struct record) * count);
  record_count = 0;
  pthread_mutex_unlock(&data);
  PyObject* bytes =
      PyBytes_FromStringAndSize((const char*)copy, copy ? (ssize_t)sizeof(struct record) * count : 0);
  free(copy);
  PyObject *list = PyList_New(0), *leaves = PyList_New(0), *all = NULL;
  if (bytes && list && leaves) {
    for (; nodes_told < node_count; nodes_told++) {
      const struct node* node = nodes + nodes_told;
      const int32_t numbers[] = {nodes_told, node->parent, node->at, node->line};
      add(list, tuple_of(codes[node->code], 4, numbers));
    }
    for (int32_t i = 0; i < new_leaf_count; i++) {
      const struct node* node = nodes + new_leaves[i];
      const int32_t numbers[] = {new_leaves[i], node->at};
      add(leaves, tuple_of(codes[node->code], 2, numbers));
    }
    new_leaf_count = 0;
    all = PyTuple_Pack(3, bytes, list, leaves);
  }
  if (bytes) Py_DecRef(bytes);
  if (list) Py_DecRef(list);
  if (leaves) Py_DecRef(leaves);
  if (!all) {
    Py_IncRef(&_Py_NoneStruct);
    PyErr_Clear();
    all = &_Py_NoneStruct;
  }
  PyGILState_Release(gil);
  return all;
}

/* ns spent, looks, samples, records dropped, the period now and the longest (ns). */
API void opscope_stacks_figures(int64_t* into) {
  pthread_mutex_lock(&data);
  const int64_t figures[] = {spent, looks, samples_taken, dropped, period, longest_period};
  memcpy(into, figures, sizeof figures);
  pthread_mutex_unlock(&data);
}

/* Sample no more often than once in this many ns. */
API void opscope_stacks_period(int64_t least) {
  pthread_mutex_lock(&data);
  base_period = least;
  pthread_mutex_unlock(&data);
}

static PyObject* collects(PyObject* self, PyObject* arguments) {
  (void)self;
  PyObject* phase = PyTuple_GetItem(arguments, 0);
  if (phase && !PyUnicode_CompareWithASCIIString(phase, "start")) {
    collection_began = now(CLOCK_MONOTONIC);
  } else if (collection_began && runs) {
    struct record record = {collection_began, now(CLOCK_MONOTONIC), -1, 0, -1, 1, COLLECTION};
    collection_began = 0;
    if (record.end - record.start >= SHORT_COLLECTION_NS) {
      record.thread = (int32_t)syscall(SYS_gettid);
      pthread_mutex_lock(&data);
      keep(record);
      pthread_mutex_unlock(&data);
    }
  }
  if (!phase) PyErr_Clear();
  Py_IncRef(&_Py_NoneStruct);
  return &_Py_NoneStruct;
}

static PyMethodDef collects_function = {
    "opscope_collects", collects, ARGUMENTS, "Note when garbage is collected."};

/* The function for gc.callbacks. */
API PyObject* opscope_stacks_collects(void) {
  int gil = PyGILState_Ensure();
  PyObject* function = PyCFunction_NewEx(&collects_function, NULL, NULL);
  PyGILState_Release(gil);
  return function;
}
