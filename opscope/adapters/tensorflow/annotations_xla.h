/* Records the operations that XLA runs. Part of annotations.c.
 *
 * XLA reports its operations to TensorFlow's profiler only. While they are wanted, we raise the profiler's
 * trace level without a profiler: each event that it would record comes here instead, when the event ends.
 * A profiler that starts meanwhile finds the level that it expects. */

typedef struct {
  const char* name;
  size_t length;
  char local[16];
  int64_t start, end;
} Traced;

static int (*real_start)(int, unsigned long);
static void (*real_record)(Traced*);
static _Atomic int* trace_level;
static _Atomic int raised, operations;
static _Atomic uint32_t programs;   /* number of distinct texts of operations */
enum { TRACING_OFF = -1, OPERATIONS = 2 };

static void lower(void) {
  int level = OPERATIONS;
  if (atomic_exchange(&raised, 0)) atomic_compare_exchange_strong(trace_level, &level, TRACING_OFF);
}

/* Write ``dot.3#hlo_op=dot.3,hlo_module=jit_f(7)#`` for ``…hlo_op=dot.3,hlo_module=jit_f,program_id=7,…``.
 * The other fields are left out, as they may differ from run to run. Returns 0 if ``name`` is not an
 * operation's or the text does not fit. */
static int operation_text(const char* name, size_t length, char* out, size_t room) {
  static const char* const titles[3] = {"hlo_op=", "hlo_module=", "program_id="};
  const char *values[3] = {"", "", ""}, *last = name + length;
  int lengths[3] = {0, 0, 0};
  for (int i = 0; i < 3; i++) {
    const char* at = memmem(name, length, titles[i], strlen(titles[i]));
    if (!at) continue;
    values[i] = at += strlen(titles[i]);
    while (at < last && *at != ',' && *at != '#') at++;
    lengths[i] = (int)(at - values[i]);
  }
  if (!lengths[0]) return 0;
  int written = snprintf(out, room, "%.*s#hlo_op=%.*s,hlo_module=%.*s(%.*s)#", lengths[0], values[0],
      lengths[0], values[0], lengths[1], values[1], lengths[2], values[2]);
  return written > 0 && (size_t)written < room;
}

/* Write one op's text for the parts of XLA's compilation, which do not overlap. Returns 0 for other names. */
static int compile_text(const char* name, size_t length, char* out, size_t room) {
  static const char* const starts[] = {"CpuCompiler::RunBackend", "GpuCompiler::RunBackend", "HLO passes"};
  for (int i = 0; i < 3; i++) {
    size_t size = strlen(starts[i]);
    if (length >= size && !memcmp(name, starts[i], size)) return snprintf(out, room, "XLA:XlaCompile") > 0;
  }
  return 0;
}

static void record_event(Traced* event) {
  char text[1024];
  if (operations && recording && (run & 1) && event->start > 0 && event->end >= event->start &&
      (operation_text(event->name, event->length, text, sizeof text) ||
          compile_text(event->name, event->length, text, sizeof text))) {
    Thread* thread = this_thread();
    Text* found = NULL;
    if (thread) {
      uint32_t before = text_count;
      heed(thread, run);
      found = text_of(hash_of(text, strlen(text)), text);
      if (text_count != before) programs++;
    }
    int64_t end = now();
    if (found && !thread->dropped && put(thread, text_base + found->id, end - (event->end - event->start), 0))
      put(thread, pop_code, end, 1);
    else
      lost++;
  }
  if (!raised) real_record(event);
}

static int start_tracer(int level, unsigned long filter) {
  lower();
  return real_start(level, filter);
}

/* Set whether XLA's operations are observed. Returns the resulting state: 0 if they cannot be observed. */
EXPORT int opscope_operations(int wanted) {
  int off = TRACING_OFF;
  operations = wanted && trace_level && real_record && real_start;
  if (!operations) {
    if (trace_level) lower();
  } else if (!raised && atomic_compare_exchange_strong(trace_level, &off, OPERATIONS)) {
    raised = 1;
  }
  return operations;
}

/* Whether the profiler's trace level is raised now. */
EXPORT int opscope_operations_on(void) { return raised; }

/* The number of distinct operations observed so far. */
EXPORT uint32_t opscope_operation_count(void) { return programs; }
