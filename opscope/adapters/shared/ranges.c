/* Push, pop and mark of an emitter that only a recorder hears, as core/capture/emit.py's _record_only writes
 * them: builtins, which append to the log (a bytearray) of the calling thread, under the GIL.
 *
 * CPython's functions are the same in every version from 3.10 on; none of its headers are needed. */
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

typedef struct object PyObject;
typedef struct thread_state PyThreadState;
typedef PyObject* (*PyCFunction)(PyObject*, PyObject*);
typedef struct {
  const char* name;
  PyCFunction function;
  int flags;
  const char* doc;
} PyMethodDef;
#define FASTCALL 0x80

char* PyByteArray_AsString(PyObject*);
int PyByteArray_Resize(PyObject*, ssize_t);
ssize_t PyByteArray_Size(PyObject*);
PyObject* PyCFunction_NewEx(PyMethodDef*, PyObject*, PyObject*);
void PyErr_Clear(void);
PyObject* PyErr_Occurred(void);
void PyErr_SetString(PyObject*, const char*);
long long PyLong_AsLongLong(PyObject*);
PyObject* PyObject_CallFunctionObjArgs(PyObject*, ...);
PyObject* PyObject_GetAttr(PyObject*, PyObject*);
PyThreadState* PyThreadState_Get(void);
uint64_t PyThreadState_GetID(PyThreadState*);
PyObject* PyTuple_GetItem(PyObject*, ssize_t); /* borrowed */
PyObject* PyUnicode_InternFromString(const char*);
void Py_DecRef(PyObject*);
void Py_IncRef(PyObject*);
extern PyObject _Py_NoneStruct, _Py_FalseStruct, _Py_TrueStruct, *PyExc_TypeError;

/* of ranges.py: what a builtin is bound to */
enum { NUMBER, POPPED, RECORDER, LOG };
/* core/recording_format.py and core/payload.py have these too; tests/test_native_constants.py compares them. */
static const int64_t kPayload = -2, kMarkBase = 1ll << 48, kCompleteBase = -(1ll << 32);
enum { kSeqBits = 48, kMaxForwardThread = 1 << 15 };

static PyObject *id_name, *deadline_name, *flush_name;
/* This thread's log in the recorder with this number. The thread's state of this id keeps it. */
static __thread PyObject* thread_log;
static __thread long long thread_number = -1;
static __thread uint64_t thread_state;

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time); /* the clock of time.perf_counter_ns on Linux */
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static PyObject* none(void) {
  Py_IncRef(&_Py_NoneStruct);
  return &_Py_NoneStruct;
}

/* An attribute that is an integer; -1, with an error set, on failure. */
static int64_t integer(PyObject* of, PyObject* name) {
  PyObject* value = PyObject_GetAttr(of, name);
  if (!value) return -1;
  int64_t number = PyLong_AsLongLong(value);
  Py_DecRef(value);
  return number;
}

/* This thread's log, null if it has none. A new one is made if ``make``; null with an error set on failure. */
static PyObject* find_log(PyObject* self, int make) {
  long long number = PyLong_AsLongLong(PyTuple_GetItem(self, NUMBER));
  uint64_t state = PyThreadState_GetID(PyThreadState_Get());
  if (number == thread_number && state == thread_state) return thread_log;
  PyObject* answer = make ? &_Py_TrueStruct : &_Py_FalseStruct;
  PyObject* log = PyObject_CallFunctionObjArgs(PyTuple_GetItem(self, LOG), answer, NULL);
  if (!log) return NULL;
  Py_DecRef(log);
  if (log == &_Py_NoneStruct) return NULL;
  thread_number = number, thread_state = state;
  return thread_log = log;
}

/* Appends the records at once, so that no interrupt can tear them. */
static int append(PyObject* log, const int64_t* records, ssize_t bytes) {
  ssize_t size = PyByteArray_Size(log);
  if (PyByteArray_Resize(log, size + bytes)) return 0;
  memcpy(PyByteArray_AsString(log) + size, records, bytes);
  return 1;
}

static PyObject* flushed(PyObject* self, int64_t time) {
  PyObject* recorder = PyTuple_GetItem(self, RECORDER);
  int64_t deadline = integer(recorder, deadline_name);
  if (deadline == -1 && PyErr_Occurred()) return NULL;
  if (time < deadline) return none();
  PyObject* flush = PyObject_GetAttr(recorder, flush_name);
  if (!flush) return NULL;
  PyObject* result = PyObject_CallFunctionObjArgs(flush, NULL);
  Py_DecRef(flush);
  return result;
}

/* push(prepared, seq = -1, thread = 0) */
static PyObject* push(PyObject* self, PyObject* const* args, ssize_t size) {
  int64_t seq = size > 1 ? PyLong_AsLongLong(args[1]) : -1,
          thread = size > 2 ? PyLong_AsLongLong(args[2]) : 0;
  if (PyErr_Occurred()) PyErr_Clear(); /* 2⁶⁴−1, which autograd nodes have that no op made */
  int64_t text = integer(args[0], id_name);
  PyObject* log = PyErr_Occurred() ? NULL : find_log(self, 1);
  if (!log) return NULL;
  int numbered = seq >= 0 && seq >> kSeqBits == 0 && thread < kMaxForwardThread;
  int64_t records[] = {kPayload, seq | thread << kSeqBits, text, now()};
  return append(log, records + (numbered ? 0 : 2), numbered ? 32 : 16) ? none() : NULL;
}

/* pop(complete = None) */
static PyObject* pop(PyObject* self, PyObject* const* args, ssize_t size) {
  int64_t time = now(), code = PyLong_AsLongLong(PyTuple_GetItem(self, POPPED));
  if (size > 0 && args[0] != &_Py_NoneStruct) code = kCompleteBase - integer(args[0], id_name);
  PyObject* log = PyErr_Occurred() ? NULL : find_log(self, 0);
  if (!log) return PyErr_Occurred() ? NULL : none(); /* pushed before this capture began */
  int64_t record[] = {code, time};
  return append(log, record, sizeof record) ? flushed(self, time) : NULL;
}

/* mark(prepared) */
static PyObject* mark(PyObject* self, PyObject* const* args, ssize_t size) {
  int64_t text = integer(args[0], id_name);
  PyObject* log = PyErr_Occurred() ? NULL : find_log(self, 1);
  if (!log) return NULL;
  int64_t record[] = {kMarkBase + text, now()};
  return append(log, record, sizeof record) ? flushed(self, record[1]) : NULL;
}

typedef PyObject* Function(PyObject*, PyObject* const*, ssize_t);
static PyObject* counted(Function* function, PyObject* self, PyObject* const* args, ssize_t size, int least) {
  if (size >= least) return function(self, args, size);
  PyErr_SetString(PyExc_TypeError, "too few arguments");
  return NULL;
}
static PyObject* any_push(PyObject* s, PyObject* const* a, ssize_t n) { return counted(push, s, a, n, 1); }
static PyObject* any_pop(PyObject* s, PyObject* const* a, ssize_t n) { return counted(pop, s, a, n, 0); }
static PyObject* any_mark(PyObject* s, PyObject* const* a, ssize_t n) { return counted(mark, s, a, n, 1); }
static PyMethodDef builtins[] = {
    {"push", (PyCFunction)any_push, FASTCALL, NULL},
    {"pop", (PyCFunction)any_pop, FASTCALL, NULL},
    {"mark", (PyCFunction)any_mark, FASTCALL, NULL},
};

/* Returns the builtin number ``which``, bound to ``self``: (the recorder's number, the code of a plain pop, the
 * recorder, a function that returns this thread's log or None). */
__attribute__((visibility("default"))) PyObject* opscope_range(int which, PyObject* self) {
  if (!id_name) id_name = PyUnicode_InternFromString("id");
  if (!deadline_name) deadline_name = PyUnicode_InternFromString("deadline");
  if (!flush_name) flush_name = PyUnicode_InternFromString("flush");
  return PyCFunction_NewEx(&builtins[which], self, NULL);
}
