/* Hears reads of an eager tensor's memory. Part of annotations.c.
 *
 * np.array(x) and memoryview(x) call no Python of the tensor: they ask its class for a buffer. That function of
 * the class comes here first. It is called with the GIL. Python's functions are looked up when they are needed,
 * so that the library is built without Python's headers; their names are of the stable ABI. */

typedef int (*GetBuffer)(void* tensor, void* view, int flags);

static GetBuffer real_buffer, *buffer_slot;
static void *buffer_begins, *buffer_ends, **interrupt;
static void* (*py_call)(void*, void*);
static int (*py_is_true)(void*), (*py_matches)(void*);
static void (*py_release)(void*), (*py_clear)(void), (*py_interrupt)(void);
static void (*py_fetch)(void**, void**, void**), (*py_restore)(void*, void*, void*);
static void* (*py_slot)(void*, int);

static const struct {
  const char* symbol;
  void** address;
} python_names[] = {
    {"PyObject_CallObject", (void**)&py_call},
    {"PyObject_IsTrue", (void**)&py_is_true},
    {"PyErr_ExceptionMatches", (void**)&py_matches},
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
 * raised again after the tensor was read. */
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

static int get_buffer(void* tensor, void* view, int flags) {
  int began = is_true(buffer_begins);
  int status = real_buffer(tensor, view, flags);
  if (began) {
    void *kind, *value, *trace;
    py_fetch(&kind, &value, &trace); /* no Python may run while an error is set */
    is_true(buffer_ends);
    py_restore(kind, value, trace);
  }
  return status;
}

/* Call ``begins`` before each read of a tensor of this class, and ``ends`` after it if that was true. NULL as
 * the class: hear none. Returns whether they are heard: not where Python's types are laid out otherwise. */
EXPORT int opscope_buffers(void* class, void* begins, void* ends) {
  if (buffer_slot && *buffer_slot == get_buffer) *buffer_slot = real_buffer;
  buffer_slot = NULL;
  if (!class) return 0;
  for (size_t i = 0; i < sizeof python_names / sizeof *python_names; i++) {
    *python_names[i].address = dlsym(RTLD_DEFAULT, python_names[i].symbol);
    if (!*python_names[i].address) return 0;
  }
  GetBuffer buffer = (GetBuffer)py_slot(class, BF_GETBUFFER);
  GetBuffer* slots = ((GetBuffer**)class)[TP_AS_BUFFER];
  if (!buffer || !slots || *slots != buffer) return 0;
  buffer_begins = begins, buffer_ends = ends;
  real_buffer = buffer, buffer_slot = slots;
  *slots = get_buffer;
  return 1;
}
