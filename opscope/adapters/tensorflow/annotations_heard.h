/* The replacements of TensorFlow's functions: each calls the original, then notes the range. Part of
 * annotations.c.
 *
 * tsl::profiler::PushAnnotation (tsl/profiler/lib/scoped_annotation.h, alike from 2.17 to 2.21) pushes a
 * range to the domain of an NVTX tool if it has one, else to the AnnotationStack while that is enabled.
 * PopAnnotation makes the same checks again. Ops are pushed as text. An instruction of XLA:GPU
 * (xla/backends/gpu/runtime/annotation.h) is also pushed to the stack as text, but to a domain as the handle
 * of a registered text. Both are popped in the same way. */

static uint64_t (*inputs_sign)(const void*);
static int (*inputs_text)(const void*, const char*, char*, int);

enum { RECORDED = 1, SENT = 2 };

static void nvtx_pop(void) { ((int (*)(void*))functions[POP])(nvtx_domain); }

/* Reset the thread's state if an earlier listening left it, and end the ranges open in the NVTX tool. */
static inline void heed(Thread* thread, uint32_t listening) {
  if (thread->run == listening) return;
  while (thread->depth)
    if (thread->told[--thread->depth] & SENT) nvtx_pop();
  thread->run = listening;
  thread->dropped = 0;
  thread->context = NULL;
}

/* Put the text into the thread's cache, with the shapes of the op's inputs if ``params`` belong to the op. */
static __attribute__((noinline)) void find(
    Thread* thread, uint64_t hash, const char* text, size_t length, const void* params) {
  char with_shapes[4096], *plain = strndup(text, length);
  const char* told = plain;
  if (plain && params && inputs_text(params, plain, with_shapes, sizeof with_shapes)) told = with_shapes;
  Text* found = plain ? text_of(hash, told) : NULL;
  if (found) {
    thread->cache[hash % CACHE].hash = hash;
    thread->cache[hash % CACHE].text = found;
    thread->cache[hash % CACHE].id = found->id;
  }
  free(plain);
}

/* Begin a range. One without a text is counted too, so that its pop does not end another range. */
static void begins(const char* text, size_t length, int send) {
  uint32_t listening = atomic_load_explicit(&run, memory_order_acquire);
  Thread* thread = listening & 1 ? this_thread() : NULL;
  if (!thread) return;
  heed(thread, listening);
  const void* params = thread->context ? thread->params : NULL;
  thread->context = NULL;
  int told = 0;
  if (thread->dropped || thread->depth == MAX_DEPTH) {
    thread->dropped++;
    lost++;
    return;
  }
  if (text) {
    uint64_t hash = hash_of(text, length);
    if (params) hash = mixed(hash, inputs_sign(params));
    __auto_type cached = &thread->cache[hash % CACHE];
    if (cached->hash != hash || !cached->text) find(thread, hash, text, length, params);
    Text* found = cached->hash == hash ? cached->text : NULL;
    if (send && to_nvtx && found) {
      nvtx_push(found);
      told |= SENT;
    }
    if (recording && found && put(thread, text_base + found->id, now(), 0)) told |= RECORDED;
    if (!found || (recording && !(told & RECORDED))) lost++;
  }
  thread->told[thread->depth++] = (uint8_t)told;
}

static void ends(void) {
  Thread* thread = mine;
  if (!thread || thread->run != run) return;
  if (thread->dropped) {
    thread->dropped--;
  } else if (thread->depth) {
    int told = thread->told[--thread->depth];
    if (told & RECORDED && recording) put(thread, pop_code, now(), 1);
    if (told & SENT) nvtx_pop();
  }
}

/* ------------------------------------------------------------------------------- the stack */

typedef struct {
  size_t length;
  const char* text;
} View; /* libstdc++'s std::string_view */

static void (*real_stack_push)(View);
static void (*real_stack_pop)(void);
static void (*real_enable)(_Bool);
static _Atomic int* generation; /* odd while the stack is enabled */
static _Atomic int wanted;      /* whether the stack would be enabled without us … */
static int annotating;          /* … and whether we want it enabled */

static void stack_push(View name) {
  real_stack_push(name);
  if (name.text) begins(name.text, name.length, 1);
}

static void stack_pop(void) {
  real_stack_pop();
  ends();
}

/* TensorFlow's profiler starts or stops: reset the stacks, as TensorFlow does without us, but keep them
 * enabled. */
static void enable(_Bool on) {
  int listening = run & 1;
  if (listening && on == wanted) return;
  wanted = on;
  if (listening) real_enable(0);
  real_enable(on || listening);
}

/* Enable the stack, or return it to the state that it would have without us. Does nothing before the first
 * opscope_install, which finds the stack. */
EXPORT void opscope_annotate(int on) {
  if (!generation) return;
  int enabled = *generation & 1;
  if (on && !enabled) wanted = 0;
  if (on && enabled && !annotating) wanted = 1;
  if (on ? !enabled : annotating && enabled && !wanted) real_enable(on != 0);
  annotating = on;
}

/* -------------------------------------------------------------------------- an NVTX tool's domain */

static void (*real_range_push)(void*, const char*);
static void (*real_range_pop)(void*);
static void (*real_titled_push)(void*, void*, unsigned long, const void*, size_t);
static void* (*real_register)(void*, const void*);

/* Handle → text of XLA's instructions; entries are never removed. Readers take no lock. */
#define TITLES (1u << 16)
static struct {
  void* _Atomic handle;
  Text* text;
} titles[TITLES];
static uint32_t title_count;

static uint32_t title_place(const void* handle) {
  return (uint32_t)mixed((uint64_t)(uintptr_t)handle, 0x9e3779b97f4a7c15ull) & (TITLES - 1);
}

static Text* title_of(const void* handle) {
  for (uint32_t at = title_place(handle);; at = (at + 1) & (TITLES - 1)) {
    void* there = atomic_load_explicit(&titles[at].handle, memory_order_acquire);
    if (there == handle) return titles[at].text;
    if (!there) return NULL;
  }
}

static void* register_string(void* domain, const void* string) {
  void* handle = real_register(domain, string);
  const struct {
    const char* text;
    size_t length;
  }* of = string; /* libstdc++'s std::string */
  int title = of->length < 4096 && (!strncmp(of->text, "Thunk:", 6) || !strncmp(of->text, "XlaModule:", 10));
  Text* text = handle && title && run & 1 ? text_of(hash_of(of->text, of->length), of->text) : NULL;
  pthread_mutex_lock(&texts_lock);
  if (text && title_count < TITLES / 2 && !title_of(handle)) {
    uint32_t at = title_place(handle);
    while (titles[at].handle) at = (at + 1) & (TITLES - 1);
    titles[at].text = text;
    atomic_store_explicit(&titles[at].handle, handle, memory_order_release);
    title_count++;
  }
  pthread_mutex_unlock(&texts_lock);
  return handle;
}

/* The NVTX tool still gets TensorFlow's own calls, so these ranges are not sent to it again. */
static void range_push(void* domain, const char* text) {
  real_range_push(domain, text);
  if (domain) begins(text, text ? strlen(text) : 0, 0);
}

static void titled_push(void* domain, void* title, unsigned long schema, const void* payload, size_t size) {
  real_titled_push(domain, title, schema, payload, size);
  Text* known = domain && title ? title_of(title) : NULL;
  if (domain) begins(known ? known->text : NULL, known ? strlen(known->text) : 0, 0);
}

static void range_pop(void* domain) {
  real_range_pop(domain);
  if (domain) ends();
}
