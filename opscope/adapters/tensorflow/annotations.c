/* Hears what TensorFlow says of the graph ops that it runs, and records it or passes it on to NVTX.
 *
 * TensorFlow wraps each op of a graph in tsl::profiler::RangePush and RangePop, once annotations are
 * enabled and tsl::profiler::DefaultProfilerDomain returns something. In CPU builds that is never so.
 * Here the entries of these three functions in the loaded libraries' import tables are exchanged,
 * and put back when nothing listens any more. No lock is taken per op, and no GIL.
 *
 * A thread's records go to blocks of its own, which opscope_take hands over: (text + base, time) is a
 * push, (pop code, time) a pop, as in opscope/core/record.py. Times are CLOCK_MONOTONIC.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define BLOCK 4094              /* records of a block: 64 KiB with its head */
#define MAX_BLOCKS 4096         /* 256 MiB: pushes beyond are dropped and counted */
#define CACHE 1024              /* texts that a thread finds without a lock */
#define MAX_TEXTS (1u << 20)

#if defined(__x86_64__)
#define JUMP_SLOT R_X86_64_JUMP_SLOT
#elif defined(__aarch64__)
#define JUMP_SLOT R_AARCH64_JUMP_SLOT
#else
#error "not a processor whose import tables are known here"
#endif

/* ------------------------------------------------------------------------------------ texts */

typedef struct { char *text; uint64_t hash; uint32_t length, id; void *nvtx; } Text;

static pthread_mutex_t texts_lock = PTHREAD_MUTEX_INITIALIZER;
static Text **table;            /* open addressing, by hash */
static Text **texts;            /* by id */
static uint32_t table_size, texts_size;
static _Atomic uint32_t text_count;

static uint64_t hash_of(const char *text, size_t length) {
    uint64_t h = 0x9e3779b97f4a7c15ull ^ length, w;
    for (; length >= 8; length -= 8, text += 8) {
        memcpy(&w, text, 8);
        h = (h ^ w) * 0xff51afd7ed558ccdull;
        h ^= h >> 32;
    }
    w = 0;
    memcpy(&w, text, length);
    h = (h ^ w) * 0xff51afd7ed558ccdull;
    return h ^ (h >> 29);
}

static void *nvtx_string(const char *text);

static int grow(void) {
    uint32_t size = table_size ? table_size * 2 : 4096, count = text_count;
    Text **larger = calloc(size, sizeof *larger);
    Text **longer = larger ? realloc(texts, sizeof *texts * (size / 2)) : NULL;
    if (!longer) {
        free(larger);
        return 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = (uint32_t)longer[i]->hash & (size - 1);
        while (larger[at]) at = (at + 1) & (size - 1);
        larger[at] = longer[i];
    }
    free(table);
    table = larger, table_size = size;
    texts = longer, texts_size = size / 2;
    return 1;
}

static Text *text_of(const char *string, size_t length, uint64_t hash) {
    Text *found = NULL;
    pthread_mutex_lock(&texts_lock);
    uint32_t at = 0;
    if (table_size) {
        at = (uint32_t)hash & (table_size - 1);
        for (; (found = table[at]); at = (at + 1) & (table_size - 1))
            if (found->hash == hash && found->length == length &&
                !memcmp(found->text, string, length))
                break;
    }
    if (!found && text_count < MAX_TEXTS && (text_count < texts_size || grow())) {
        found = calloc(1, sizeof *found);
        if (found && (found->text = malloc(length + 1))) {
            memcpy(found->text, string, length + 1);
            found->length = (uint32_t)length;
            found->hash = hash;
            found->id = text_count;
            found->nvtx = nvtx_string(found->text);
            for (at = (uint32_t)hash & (table_size - 1); table[at];)
                at = (at + 1) & (table_size - 1);
            table[at] = texts[text_count] = found;
            text_count++;
        } else {
            free(found);
            found = NULL;
        }
    }
    pthread_mutex_unlock(&texts_lock);
    return found;
}

/* ---------------------------------------------------------------------------------- threads */

typedef struct { int64_t code, value; } Record;
typedef struct Block {
    struct Block *_Atomic next;
    _Atomic uint64_t count;     /* written by the owner, read by who takes */
    uint64_t pad[2];
    Record records[BLOCK];
} Block;

typedef struct Thread {
    struct Thread *next;
    int64_t number, tid, ident;
    Block *block;               /* the owner's */
    Block *taken;               /* the taker's, and how far it is in it */
    uint64_t upto;
    _Atomic int gone;
    uint32_t run;               /* the listening that the depths below are of */
    int depth, dropped;         /* open ranges that are recorded; that are not */
    Text *cache[CACHE];
} Thread;

static pthread_mutex_t threads_lock = PTHREAD_MUTEX_INITIALIZER;
static Thread *threads;
static int64_t thread_count;
static _Atomic int blocks;
static _Atomic int64_t lost;
static _Atomic uint32_t run;    /* odd: something listens */
static _Atomic int recording;
static int64_t text_base, pop_code, thread_base, chunk_code;
static __thread Thread *mine;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void thread_ends(void *thread) { ((Thread *)thread)->gone = 1; mine = NULL; }
static void make_key(void) { pthread_key_create(&key, thread_ends); }

static Block *new_block(void) {
    Block *block = malloc(sizeof *block);
    if (block) {
        block->next = NULL;
        block->count = 0;
        blocks++;
    }
    return block;
}

static Thread *this_thread(void) {
    if (mine) return mine;
    Thread *thread = calloc(1, sizeof *thread);
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

static int put(Thread *thread, int64_t code, int64_t value, int must) {
    Block *block = thread->block;
    uint64_t count = atomic_load_explicit(&block->count, memory_order_relaxed);
    if (count == BLOCK) {
        Block *next = must || blocks < MAX_BLOCKS ? new_block() : NULL;
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

/* ------------------------------------------------------------ in TensorFlow's functions' place */

static char ours;               /* the domain that TensorFlow gets where it has none of its own */
static void *(*real_domain)(void);
static void (*real_push)(void *, const char *);
static void (*real_pop)(void *);

static void *domain_now(void) {
    void *domain = real_domain();
    return domain || !(run & 1) ? domain : &ours;
}

static void push(void *domain, const char *text) {
    if (domain != &ours) real_push(domain, text);
    uint32_t listening = atomic_load_explicit(&run, memory_order_acquire);
    Thread *thread = listening & 1 ? this_thread() : NULL;
    if (!thread || !text) return;
    if (thread->run != listening) {
        thread->run = listening;
        thread->depth = thread->dropped = 0;
    }
    size_t length = strlen(text);
    uint64_t hash = hash_of(text, length);
    Text **cached = &thread->cache[hash % CACHE], *found = *cached;
    if (!found || found->hash != hash || found->length != length ||
        memcmp(found->text, text, length)) {
        found = text_of(text, length, hash);
        if (found) *cached = found;
    }
    if (!found || thread->dropped) {
        thread->dropped++;
        lost++;
        return;
    }
    if (to_nvtx && domain == &ours) nvtx_push(found);
    if (recording && !put(thread, text_base + found->id, now(), 0)) {
        if (to_nvtx && domain == &ours) ((int (*)(void *))functions[POP])(nvtx_domain);
        thread->dropped++;
        lost++;
        return;
    }
    thread->depth++;
}

static void pop(void *domain) {
    if (domain != &ours) real_pop(domain);
    Thread *thread = mine;
    if (!thread || thread->run != run) return;
    if (thread->dropped) {
        thread->dropped--;
    } else if (thread->depth) {
        thread->depth--;
        if (recording) put(thread, pop_code, now(), 1);
        if (to_nvtx && domain == &ours) ((int (*)(void *))functions[POP])(nvtx_domain);
    }
}

/* ------------------------------------------------------------------- shapes of what is run */
/* While TensorFlow's host tracer is at its highest level, an op's announcement ends in the shapes of
 * its inputs. We raise the level without a tracer: what it would record is dropped, and a tracer
 * that starts meanwhile finds the level as it must be. */

static int (*real_start)(int, unsigned long);
static void (*real_record)(void *);
static _Atomic int *trace_level;
static _Atomic int raised;
enum { TRACING_OFF = -1, DETAILS = 3 };

static void lower(void) {
    int details = DETAILS;
    if (atomic_exchange(&raised, 0))
        atomic_compare_exchange_strong(trace_level, &details, TRACING_OFF);
}

static void record_event(void *event) {
    if (!raised) real_record(event);
}

static int start_tracer(int level, unsigned long filter) {
    lower();
    return real_start(level, filter);
}

/* Whether announcements are to have shapes; what is so now. */
EXPORT int opscope_shapes(int wanted) {
    int off = TRACING_OFF;
    if (!trace_level || !real_record || !real_start) return 0;
    if (!wanted) lower();
    else if (!raised && atomic_compare_exchange_strong(trace_level, &off, DETAILS)) raised = 1;
    return raised;
}

/* ------------------------------------------------------------------------- the import tables */

static const struct { const char *symbol; void *replacement; } replaced[] = {
    {"_ZN3tsl8profiler21DefaultProfilerDomainEv", (void *)domain_now},
    {"_ZN3tsl8profiler9RangePushEPNS0_14ProfilerDomainEPKc", (void *)push},
    {"_ZN3tsl8profiler8RangePopEPNS0_14ProfilerDomainE", (void *)pop},
    {"_ZN3tsl8profiler15TraceMeRecorder6RecordEONS1_5EventE", (void *)record_event},
    {"_ZN3tsl8profiler15TraceMeRecorder5StartEim", (void *)start_tracer},
};
enum { NEEDED = 3, REPLACED = 5, MAX_PATCHES = 96 };

#include "annotations_tables.h"

/* Exchange the functions in all loaded TensorFlow libraries; how many entries were (0: none is there).
 * ``framework`` is the path of libtensorflow_framework, which must be loaded. */
EXPORT int opscope_install(const char *framework) {
    void *library = dlopen(framework, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) return 0;
    *(void **)&real_domain = dlsym(library, replaced[0].symbol);
    *(void **)&real_push = dlsym(library, replaced[1].symbol);
    *(void **)&real_pop = dlsym(library, replaced[2].symbol);
    if (!real_domain || !real_push || !real_pop) return 0;
    *(void **)&real_record = dlsym(library, replaced[3].symbol);
    *(void **)&real_start = dlsym(library, replaced[4].symbol);
    *(void **)&trace_level = dlsym(library, "_ZN3tsl8profiler8internal13g_trace_levelE");
    replaceable = real_record && real_start && trace_level ? REPLACED : NEEDED;
    dl_iterate_phdr(patch_library, NULL);
    return patched;
}

/* Put every entry back that is still ours. */
EXPORT void opscope_uninstall(void) {
    if (trace_level) lower();
    while (patched) {
        patched--;
        if (*patches[patched].slot == patches[patched].after)
            write_slot(patches[patched].slot, patches[patched].before, patches[patched].read_only);
    }
}

/* Entries that hold our functions now. */
EXPORT int opscope_installed(void) {
    int count = 0;
    for (int i = 0; i < patched; i++) count += *patches[i].slot == patches[i].after;
    return count;
}

/* --------------------------------------------------------------------------- listen and take */

EXPORT void opscope_listen(int record, int nvtx, int64_t texts_from, int64_t popped,
                           int64_t threads_from, int64_t chunk) {
    if (record) {
        text_base = texts_from, pop_code = popped, thread_base = threads_from, chunk_code = chunk;
    }
    recording = record;
    to_nvtx = nvtx && nvtx_domain;
    if (run & 1) run++;
    if (recording || to_nvtx) run++;
}

/* Records that wait to be taken. */
EXPORT int64_t opscope_waiting(void) {
    int64_t total = 0;
    pthread_mutex_lock(&threads_lock);
    for (Thread *t = threads; t; t = t->next) {
        uint64_t skip = t->upto;
        for (Block *b = t->taken; b; b = b->next, skip = 0) total += (int64_t)(b->count - skip);
        total++;
    }
    pthread_mutex_unlock(&threads_lock);
    return total;
}

/* Copy chunks of records (a head (chunk - thread, count), then the records) into ``out``, which has
 * room for ``room`` records; how many were written. Only one caller at a time. */
EXPORT int64_t opscope_take(Record *out, int64_t room) {
    int64_t written = 0;
    pthread_mutex_lock(&threads_lock);
    for (Thread **place = &threads; *place;) {
        Thread *t = *place;
        int gone = t->gone;
        Record *head = NULL;
        while (written + 1 < room) {
            uint64_t count = atomic_load_explicit(&t->taken->count, memory_order_acquire);
            int64_t many = (int64_t)(count - t->upto);
            if (many > room - written - (head ? 0 : 1)) many = room - written - (head ? 0 : 1);
            if (many > 0) {
                if (!head) {
                    head = &out[written++];
                    *head = (Record){chunk_code - (thread_base + t->number), 0};
                }
                memcpy(&out[written], &t->taken->records[t->upto], (size_t)many * sizeof *out);
                written += many;
                head->value += many;
                t->upto += (uint64_t)many;
            }
            Block *next = atomic_load_explicit(&t->taken->next, memory_order_acquire);
            if (t->upto < BLOCK || !next) break;
            free(t->taken);
            blocks--;
            t->taken = next;
            t->upto = 0;
        }
        if (gone && t->upto == t->taken->count && !t->taken->next) {
            *place = t->next;
            free(t->taken);
            blocks--;
            free(t);
        } else {
            place = &t->next;
        }
    }
    pthread_mutex_unlock(&threads_lock);
    return written;
}

/* (number, thread id, pthread ident) of threads from ``from`` on; how many. Ended ones may lack. */
EXPORT int64_t opscope_threads(int64_t from, int64_t *out, int64_t room) {
    int64_t many = 0;
    pthread_mutex_lock(&threads_lock);
    for (Thread *t = threads; t && many < room; t = t->next) {
        if (t->number < from) continue;
        out[3 * many] = thread_base + t->number;
        out[3 * many + 1] = t->tid;
        out[3 * many + 2] = t->ident;
        many++;
    }
    pthread_mutex_unlock(&threads_lock);
    return many;
}

EXPORT int64_t opscope_thread_count(void) { return thread_count; }
EXPORT uint32_t opscope_text_count(void) { return text_count; }
EXPORT int64_t opscope_lost(void) { return lost; }

EXPORT const char *opscope_text(uint32_t id) {
    pthread_mutex_lock(&texts_lock);
    const char *text = id < text_count ? texts[id]->text : NULL;
    pthread_mutex_unlock(&texts_lock);
    return text;
}
