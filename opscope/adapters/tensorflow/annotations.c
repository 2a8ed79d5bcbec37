/* Observes the graph ops that TensorFlow runs, and records them or passes them on to NVTX.
 *
 * While annotations are enabled, TensorFlow pushes the name of each graph op to its AnnotationStack, where
 * its own profiler finds the name, and pops it after the op. If an NVTX tool is attached to TensorFlow, which
 * only GPU builds allow, TensorFlow pushes a range to that tool instead. The loaded libraries have entries
 * for these functions in their import tables. We replace the entries with functions of ours, which call the
 * original and note the op, and restore them when nothing listens. An op takes no lock and no GIL.
 *
 * Each thread writes records to its own blocks, and opscope_take copies them out: (text + base, time) is a
 * push, (pop code, time) a pop, as in opscope/core/recording_format.py. Times are CLOCK_MONOTONIC, in ns.
 *
 * If a graph's sizes are not known when it is built, the name of an op is not enough. TensorFlow creates the
 * op's context just before it pushes the name. We hook that creation in the same way, and inputs.cc reads
 * the shapes of the op's inputs from the context.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
/* Python has these two constants too (core/recording_format.py, core/capture/nvtx_sink.py);
 * tests/test_native_constants.py compares them. opscope_listen gets the recording format's other numbers. */
#define RECORD_BYTES 16
#define MAX_REGISTERED 65536
#define BLOCK 4094              /* records in a block, which has 64 KiB with its header */
#define MAX_BLOCKS 4096         /* 256 MiB: further pushes are dropped and counted */
#define CACHE 4096              /* texts that a thread finds without a lock */
#define MAX_TEXTS (1u << 20)
#define ARENA ((size_t)1 << 18) /* bytes of a memory mapping for texts */
#define MAX_DEPTH 256           /* nested ranges of a thread: deeper ones are dropped and counted */

#if defined(__x86_64__)
#define JUMP_SLOT R_X86_64_JUMP_SLOT
#elif defined(__aarch64__)
#define JUMP_SLOT R_AARCH64_JUMP_SLOT
#else
#error "opscope knows import tables on x86-64 and AArch64 only"
#endif

#include "annotations_texts.h"

/* ---------------------------------------------------------------------------------- threads */

typedef struct {
  int64_t code, value;
} Record;
_Static_assert(sizeof(Record) == RECORD_BYTES, "a record of a recording");
typedef struct Block {
  struct Block* _Atomic next;
  _Atomic uint64_t count;     /* written by the owning thread, read by the taking thread */
  uint64_t pad[2];
  Record records[BLOCK];
} Block;

typedef struct Thread {
  struct Thread* next;
  int64_t number, tid, ident;
  Block* block;               /* the block that the owning thread writes */
  Block* taken;               /* the block that is taken next, and how many of its records are taken */
  uint64_t upto;
  _Atomic int gone;
  uint32_t run;               /* the value of the global run to which the counts below belong */
  int depth, dropped;         /* number of open ranges, and of deeper ones, which are dropped */
  uint8_t told[MAX_DEPTH];    /* where each open range was sent: RECORDED, SENT */
  const void* context;        /* the context of the op that will be announced next … */
  const void* params;         /* … and that context's parameters */
  struct {
    uint64_t hash;
    Text* text;
    uint32_t id;
  } cache[CACHE];
} Thread;

static pthread_mutex_t threads_lock = PTHREAD_MUTEX_INITIALIZER;
static Thread* threads;
static int64_t thread_count;
static _Atomic int blocks;
static _Atomic int64_t lost;
static _Atomic uint32_t run;    /* counts starts and ends of listening; odd while something listens */
static _Atomic int recording;
static int64_t text_base, pop_code, thread_base, chunk_code;
static __thread Thread* mine __attribute__((tls_model("initial-exec")));
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void thread_ends(void* thread) {
  ((Thread*)thread)->gone = 1;
  mine = NULL;
}
static void make_key(void) { pthread_key_create(&key, thread_ends); }

static Block* new_block(void) {
  Block* block = malloc(sizeof *block);
  if (block) {
    block->next = NULL;
    block->count = 0;
    blocks++;
  }
  return block;
}

static Thread* this_thread(void) {
  if (mine) return mine;
  Thread* thread = calloc(1, sizeof *thread);
  if (!thread) return NULL;
  if (!(thread->block = thread->taken = new_block())) {
    free(thread);
    return NULL;
  }
  thread->tid = syscall(SYS_gettid);
  thread->ident = (int64_t)(intptr_t)pthread_self();
  pthread_once(&once, make_key);
  pthread_setspecific(key, thread);
  pthread_mutex_lock(&threads_lock);
  thread->number = thread_count++;
  thread->next = threads;
  threads = thread;
  pthread_mutex_unlock(&threads_lock);
  return mine = thread;
}

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int put(Thread* thread, int64_t code, int64_t value, int must) {
  Block* block = thread->block;
  uint64_t count = atomic_load_explicit(&block->count, memory_order_relaxed);
  if (count == BLOCK) {
    Block* next = must || blocks < MAX_BLOCKS ? new_block() : NULL;
    if (!next) return 0;
    atomic_store_explicit(&block->next, next, memory_order_release);
    thread->block = block = next;
    count = 0;
  }
  block->records[count] = (Record){code, value};
  atomic_store_explicit(&block->count, count + 1, memory_order_release);
  return 1;
}

/* ------------------------------------------------------------------------------------- NVTX */

#include "annotations_nvtx.h"

#include "annotations_heard.h"

/* -------------------------------------------------------------------- shapes of ops' inputs */
/* TensorFlow creates an op's context, then announces the op, on the same thread. While shapes are
 * wanted, the thread remembers the context until the announcement, or until the context is destroyed. */

static void (*real_context)(void*, void*, int);
static void (*real_context_end)(void*);
static _Atomic int shapes;

static void context_begins(void* context, void* params, int outputs) {
  real_context(context, params, outputs);
  if (!atomic_load_explicit(&shapes, memory_order_relaxed)) return;
  Thread* thread = run & 1 ? this_thread() : NULL;
  if (!thread) return;
  heed(thread, run);
  thread->context = context;
  thread->params = params;
}

static void context_ends(void* context) {
  if (mine && mine->context == context) mine->context = NULL;
  real_context_end(context);
}

/* Set the functions of inputs.cc that read a context's parameters. Called once, before shapes are wanted. */
EXPORT void opscope_inputs(uint64_t (*sign)(const void*), int (*text)(const void*, const char*, char*, int)) {
  inputs_sign = sign;
  inputs_text = text;
}

/* Set whether texts have shapes. Returns the resulting state: 0 if shapes cannot be read. */
EXPORT int opscope_shapes(int wanted) {
  return shapes = wanted && inputs_sign && real_context && real_context_end;
}

#include "annotations_xla.h"

#include "annotations_input.h"

/* ------------------------------------------------------------------------- the import tables */

static const struct {
  const char* symbol;
  void* replacement;
  void** real;
} replaced[] = {
    {"_ZN3tsl8profiler15AnnotationStack14PushAnnotationESt17basic_string_viewIcSt11char_traitsIcEE",
        (void*)stack_push, (void**)&real_stack_push},
    {"_ZN3tsl8profiler15AnnotationStack13PopAnnotationEv", (void*)stack_pop, (void**)&real_stack_pop},
    {"_ZN3tsl8profiler15AnnotationStack6EnableEb", (void*)enable, (void**)&real_enable},
    {"_ZN3tsl8profiler9RangePushEPNS0_14ProfilerDomainEPKc", (void*)range_push, (void**)&real_range_push},
    {"_ZN3tsl8profiler6detail9RangePushEPNS0_14ProfilerDomainEPNS0_6StringEmPKvm", (void*)titled_push,
        (void**)&real_titled_push},
    {"_ZN3tsl8profiler8RangePopEPNS0_14ProfilerDomainE", (void*)range_pop, (void**)&real_range_pop},
    {"_ZN3tsl8profiler14RegisterStringEPNS0_14ProfilerDomainERKNSt7__cxx1112basic_stringIcSt11char_"
     "traitsIcESaIcEEE",
        (void*)register_string, (void**)&real_register},
    {"_ZN10tensorflow15OpKernelContextC1EPNS0_6ParamsEi", (void*)context_begins, (void**)&real_context},
    {"_ZN10tensorflow15OpKernelContextD1Ev", (void*)context_ends, (void**)&real_context_end},
    {"_ZN3tsl8profiler15TraceMeRecorder6RecordEONS1_5EventE", (void*)record_event, (void**)&real_record},
    {"_ZN3tsl8profiler15TraceMeRecorder5StartEim", (void*)start_tracer, (void**)&real_start},
    {"_ZN10tensorflow7metrics27RecordTFDataGetNextDurationEm", (void*)got_next, (void**)&real_get_next},
};
enum { NEEDED = 3, REPLACED = sizeof replaced / sizeof *replaced, MAX_PATCHES = 128 };

#include "annotations_tables.h"

/* Replace the functions in all loaded TensorFlow libraries. Returns the number of replaced entries (0: none
 * was found). ``framework`` is the path of libtensorflow_framework, which must be loaded. */
EXPORT int opscope_install(const char* framework) {
  void* library = dlopen(framework, RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return 0;
  for (int i = 0; i < REPLACED; i++) {
    *replaced[i].real = dlsym(library, replaced[i].symbol);
    if (!*replaced[i].real && i < NEEDED) return 0;
  }
  *(void**)&generation = dlsym(library, "_ZN3tsl8profiler15AnnotationStack11generation_E");
  if (!generation) return 0;
  *(void**)&trace_level = dlsym(library, "_ZN3tsl8profiler8internal13g_trace_levelE");
  dl_iterate_phdr(patch_library, NULL);
  return patched;
}

/* Restore every entry that still points to our function. */
EXPORT void opscope_uninstall(void) {
  opscope_operations(0);
  shapes = 0;
  while (patched) {
    patched--;
    if (*patches[patched].slot == patches[patched].after)
      write_slot(patches[patched].slot, patches[patched].before, patches[patched].read_only);
  }
}

/* The number of entries that now point to our functions. */
EXPORT int opscope_installed(void) {
  int count = 0;
  for (int i = 0; i < patched; i++) count += *patches[i].slot == patches[i].after;
  return count;
}

/* --------------------------------------------------------------------------- listen and take */

/* Start, change or end listening. The four numbers, used if ``record``, are the recording format's. */
EXPORT void opscope_listen(
    int record, int nvtx, int64_t texts_from, int64_t popped, int64_t threads_from, int64_t chunk) {
  if (record) {
    text_base = texts_from, pop_code = popped, thread_base = threads_from, chunk_code = chunk;
  }
  recording = record;
  to_nvtx = nvtx && nvtx_domain;
  if (run & 1) run++;
  if (recording || to_nvtx) run++;
}

#include "annotations_take.h"

EXPORT int64_t opscope_thread_count(void) { return thread_count; }
EXPORT uint32_t opscope_text_count(void) { return text_count; }
EXPORT int64_t opscope_lost(void) { return lost; }

EXPORT const char* opscope_text(uint32_t id) {
  pthread_mutex_lock(&texts_lock);
  const char* text = id < text_count ? texts[id]->text : NULL;
  pthread_mutex_unlock(&texts_lock);
  return text;
}
