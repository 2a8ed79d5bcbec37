/* Hears reads of an array's memory by the buffer protocol.
 *
 * np.array(x) and memoryview(x) call no Python of the array: they ask its class for a buffer. That function of
 * the class comes here first. It is called with the GIL. Python's functions are looked up when they are needed,
 * so that the library is built without Python's headers; their names are of the stable ABI. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

typedef int (*GetBuffer)(void* array, void* view, int flags);

/* A class whose reads are heard, or were: a subclass that was made meanwhile keeps calling its entry. */
typedef struct {
  void *class, *begins, *ends, *refused;
  GetBuffer real, *slot;
} Heard;
enum { MAX_CLASSES = 4 };
static Heard heard[MAX_CLASSES];

static void** interrupt;
static void* (*py_call)(void*, void*);
static int (*py_is_true)(void*), (*py_matches)(void*);
static void (*py_keep)(void*), (*py_release)(void*), (*py_clear)(void), (*py_interrupt)(void);
static void (*py_fetch)(void**, void**, void**), (*py_restore)(void*, void*, void*);
static void* (*py_slot)(void*, int);

static const struct {
  const char* symbol;
  void** address;
} python_names[] = {
    {"PyObject_CallObject", (void**)&py_call},
    {"PyObject_IsTrue", (void**)&py_is_true},
    {"PyErr_ExceptionMatches", (void**)&py_matches},
    {"Py_IncRef", (void**)&py_keep},
    {"Py_DecRef", (void**)&py_release},
    {"PyErr_Clear", (void**)&py_clear},
    {"PyErr_SetInterrupt", (void**)&py_interrupt},
    {"PyErr_Fetch", (void**)&py_fetch},
    {"PyErr_Restore", (void**)&py_restore},
    {"PyType_GetSlot", (void**)&py_slot},
    {"PyExc_KeyboardInterrupt", (void**)&interrupt},
};
enum { BF_GETBUFFER = 1, TP_AS_BUFFER = 20 }; /* the slot's number, and its word in a type object */

/* Whether a call of Python's returns true. What it raises is ours, but for the user's interrupt, which is
 * raised again after the array was read. */
static int is_true(void* function) {
  void* answer = py_call(function, NULL);
  if (!answer) {
    int stopped = py_matches(*interrupt);
    py_clear();
    if (stopped) py_interrupt();
    return 0;
  }
  int yes = py_is_true(answer) == 1;
  py_release(answer);
  return yes;
}

static int get_buffer(const Heard* of, void* array, void* view, int flags) {
  GetBuffer real = of->real;
  void *begins = of->begins, *ends = of->ends, *refused = of->refused;
  if (!begins) return real(array, view, flags);
  py_keep(begins), py_keep(ends), py_keep(refused); /* another thread may forget them meanwhile */
  int began = is_true(begins);
  int status = real(array, view, flags);
  void *kind, *value, *trace;
  py_fetch(&kind, &value, &trace); /* no Python may run while an error is set */
  if (began) is_true(status ? refused : ends);
  py_release(begins), py_release(ends), py_release(refused);
  py_restore(kind, value, trace);
  return status;
}

static int get_0(void* array, void* view, int flags) { return get_buffer(&heard[0], array, view, flags); }
static int get_1(void* array, void* view, int flags) { return get_buffer(&heard[1], array, view, flags); }
static int get_2(void* array, void* view, int flags) { return get_buffer(&heard[2], array, view, flags); }
static int get_3(void* array, void* view, int flags) { return get_buffer(&heard[3], array, view, flags); }
static const GetBuffer entries[MAX_CLASSES] = {get_0, get_1, get_2, get_3};

/* Call ``begins`` before each read of the memory of an array of this class; if that was true, call ``ends``
 * after it, or ``refused`` if the array gave no memory. Returns whether reads are heard: not where Python's
 * types are laid out otherwise. */
EXPORT int opscope_buffers(void* class, void* begins, void* ends, void* refused) {
  for (size_t i = 0; i < sizeof python_names / sizeof *python_names; i++) {
    *python_names[i].address = dlsym(RTLD_DEFAULT, python_names[i].symbol);
    if (!*python_names[i].address) return 0;
  }
  int at = 0;
  while (at < MAX_CLASSES && heard[at].class && heard[at].class != class) at++;
  if (at == MAX_CLASSES) return 0;
  GetBuffer buffer = (GetBuffer)py_slot(class, BF_GETBUFFER);
  GetBuffer* slots = ((GetBuffer**)class)[TP_AS_BUFFER];
  if (!buffer || !slots || *slots != buffer) return 0;
  Heard* of = &heard[at];
  if (of->begins) return 0; /* another adapter hears them */
  if (!of->class) py_keep(class);
  py_keep(begins), py_keep(ends), py_keep(refused);
  of->class = class, of->begins = begins, of->ends = ends, of->refused = refused;
  of->slot = slots;
  if (buffer != entries[at]) of->real = buffer, *slots = entries[at];
  return 1;
}

/* Hear no more reads of arrays of this class. */
EXPORT void opscope_buffers_end(void* class) {
  int at = 0;
  while (at < MAX_CLASSES && heard[at].class != class) at++;
  if (at == MAX_CLASSES || !heard[at].begins) return;
  Heard* of = &heard[at];
  if (*of->slot == entries[at]) *of->slot = of->real;
  void *begins = of->begins, *ends = of->ends, *refused = of->refused;
  of->begins = of->ends = of->refused = NULL;
  py_release(begins), py_release(ends), py_release(refused);
}
