/* Push, pop and mark of an emitter that only a recorder hears, as record_only in core/capture/emit.py writes them.
 *
 * They are builtins, which append to the log (a bytearray) of the calling thread, under the GIL. They write what is
 * usual. All else (a thread's first range, keywords, wrong arguments, no memory) they leave to the functions of
 * record_only, called with the same arguments, so that what it gives or raises is the same. They keep no state
 * between calls. CPython's functions are the same in every version from 3.10 on; none of its headers are needed. */
#define _DEFAULT_SOURCE
#include <endian.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

typedef struct object PyObject;
typedef PyObject* (*PyCFunction)(PyObject*, PyObject*);
typedef struct {
  const char* name;
  PyCFunction function;
  int flags;
  const char* doc;
} PyMethodDef;
enum { FASTCALL = 0x80, KEYWORDS = 0x2 };

char* PyByteArray_AsString(PyObject*);
int PyByteArray_Resize(PyObject*, ssize_t);
ssize_t PyByteArray_Size(PyObject*);
PyObject* PyCFunction_GetSelf(PyObject*); /* borrowed */
PyObject* PyCFunction_NewEx(PyMethodDef*, PyObject*, PyObject*);
PyObject* PyDict_New(void);
int PyDict_SetItem(PyObject*, PyObject*, PyObject*);
void PyErr_Clear(void);
PyObject* PyErr_Occurred(void);
long long PyLong_AsLongLong(PyObject*);
long long PyLong_AsLongLongAndOverflow(PyObject*, int*);
PyObject* PyObject_CallNoArgs(PyObject*);
PyObject* PyObject_GetAttr(PyObject*, PyObject*);
PyObject* PyObject_VectorcallDict(PyObject*, PyObject* const*, size_t, PyObject*);
PyObject* PyTuple_GetItem(PyObject*, ssize_t); /* borrowed */
ssize_t PyTuple_Size(PyObject*);
void Py_DecRef(PyObject*);
void Py_IncRef(PyObject*);
extern PyObject _Py_NoneStruct;

/* What a builtin is bound to, a tuple that ranges.py makes. */
enum { LOCAL, RECORDER, FLUSH, POPPED, NAME_OF_LOG, NAME_OF_ID, NAME_OF_DEADLINE, PYTHON };
/* core/recording_format.py and core/payload.py have these too; tests/test_native_constants.py compares them. */
static const int64_t kPayload = -2, kMarkBase = 1ll << 48, kCompleteBase = -(1ll << 32);
enum { kSeqBits = 48, kMaxForwardThread = 1 << 15 };

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time); /* the clock of time.perf_counter_ns on Linux */
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static PyObject* none(void) {
  Py_IncRef(&_Py_NoneStruct);
  return &_Py_NoneStruct;
}

/* Whether the attribute is an integer, which ``value`` becomes; else an error is set. */
static int read(PyObject* of, PyObject* name, int64_t* value) {
  PyObject* number = PyObject_GetAttr(of, name);
  if (!number) return 0;
  *value = PyLong_AsLongLong(number);
  Py_DecRef(number);
  return *value != -1 || !PyErr_Occurred();
}

/* The method that appends to the calling thread's log, a new reference; null with an error set if it has none. */
static PyObject* find(PyObject* self) {
  return PyObject_GetAttr(PyTuple_GetItem(self, LOCAL), PyTuple_GetItem(self, NAME_OF_LOG));
}

/* Appends the records at once, so that no interrupt can tear them; takes the reference. Whether that was done. */
static int append(PyObject* method, int64_t* records, int count) {
  for (int i = 0; i < count; i++) records[i] = (int64_t)htole64((uint64_t)records[i]);
  PyObject* log = PyCFunction_GetSelf(method);
  ssize_t size = log ? PyByteArray_Size(log) : 0, bytes = count * (ssize_t)sizeof *records;
  int done = log && !PyByteArray_Resize(log, size + bytes);
  if (done) memcpy(PyByteArray_AsString(log) + size, records, bytes);
  Py_DecRef(method);
  return done;
}

/* Lets Python's function number ``which`` do it instead; an error of ours is dropped. */
static PyObject* leave(PyObject* self, int which, PyObject* const* args, ssize_t size, PyObject* names) {
  PyErr_Clear();
  PyObject* keywords = names ? PyDict_New() : NULL;
  if (names && !keywords) return NULL;
  PyObject* result = NULL;
  int failed = 0;
  for (ssize_t i = 0; names && i < PyTuple_Size(names) && !failed; i++)
    failed = PyDict_SetItem(keywords, PyTuple_GetItem(names, i), args[size + i]);
  if (!failed) result = PyObject_VectorcallDict(PyTuple_GetItem(self, PYTHON + which), args, size, keywords);
  if (keywords) Py_DecRef(keywords);
  return result;
}

static PyObject* flushed(PyObject* self, int64_t time) {
  int64_t deadline;
  if (!read(PyTuple_GetItem(self, RECORDER), PyTuple_GetItem(self, NAME_OF_DEADLINE), &deadline)) return NULL;
  return time < deadline ? none() : PyObject_CallNoArgs(PyTuple_GetItem(self, FLUSH));
}

/* push(prepared, seq = -1, thread = 0) */
static PyObject* push(PyObject* self, PyObject* const* args, ssize_t size, PyObject* names) {
  int64_t text, seq = -1, thread = 0;
  int large;
  if (names || size < 1 || size > 3 || !read(args[0], PyTuple_GetItem(self, NAME_OF_ID), &text))
    return leave(self, 0, args, size, names);
  if (size > 1) { /* 2⁶⁴−1 too, which autograd nodes have that no op made */
    seq = PyLong_AsLongLongAndOverflow(args[1], &large);
    if (seq == -1 && PyErr_Occurred()) return leave(self, 0, args, size, names);
  }
  if (size > 2) {
    thread = PyLong_AsLongLongAndOverflow(args[2], &large);
    if (thread < 0) /* or too large, or no integer */
      return leave(self, 0, args, size, names);
  }
  PyObject* method = find(self);
  if (!method) return leave(self, 0, args, size, names);
  int numbered = seq >= 0 && seq >> kSeqBits == 0 && thread < kMaxForwardThread;
  int64_t records[] = {kPayload, numbered ? seq | thread << kSeqBits : 0, text, now()};
  int done = append(method, records + (numbered ? 0 : 2), numbered ? 4 : 2);
  return done ? none() : leave(self, 0, args, size, names);
}

/* pop(complete = None) */
static PyObject* pop(PyObject* self, PyObject* const* args, ssize_t size, PyObject* names) {
  int64_t time = now(), text = 0;
  int plain = !names && (size == 0 || (size == 1 && args[0] == &_Py_NoneStruct));
  if (!plain && (names || size > 1 || !read(args[0], PyTuple_GetItem(self, NAME_OF_ID), &text)))
    return leave(self, 1, args, size, names);
  int64_t code = plain ? PyLong_AsLongLong(PyTuple_GetItem(self, POPPED)) : kCompleteBase - text;
  int64_t record[] = {code, time};
  PyObject* method = find(self);
  if (!method || !append(method, record, 2)) return leave(self, 1, args, size, names);
  return flushed(self, time);
}

/* mark(prepared) */
static PyObject* mark(PyObject* self, PyObject* const* args, ssize_t size, PyObject* names) {
  int64_t text;
  if (names || size != 1 || !read(args[0], PyTuple_GetItem(self, NAME_OF_ID), &text))
    return leave(self, 2, args, size, names);
  PyObject* method = find(self);
  int64_t time = now(), record[] = {kMarkBase + text, time};
  if (!method || !append(method, record, 2)) return leave(self, 2, args, size, names);
  return flushed(self, time);
}

static PyMethodDef builtins[] = {
    {"push", (PyCFunction)(void (*)(void))push, FASTCALL | KEYWORDS, NULL},
    {"pop", (PyCFunction)(void (*)(void))pop, FASTCALL | KEYWORDS, NULL},
    {"mark", (PyCFunction)(void (*)(void))mark, FASTCALL | KEYWORDS, NULL},
};

/* Returns the builtin number ``which``, bound to ``self``; null with an error set on failure. */
__attribute__((visibility("default"))) PyObject* opscope_range(int which, PyObject* self) {
  return PyCFunction_NewEx(&builtins[which], self, NULL);
}
