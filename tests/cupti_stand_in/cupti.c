/* A stand-in for NVIDIA's libcupti: the calls that opscope makes, and activity that a test plays.
 *
 * It follows what CUPTI's headers say. A thread's records go to a buffer that is asked for on that thread; a
 * buffer is handed back by a worker thread when it is full and its records are complete, or by a flush, which
 * waits for the worker; a forced flush also hands back what is not complete, with times of 0. A buffer that is
 * refused means dropped records. There is one subscriber.
 *
 * The activity comes from a file that tests/cupti_stand_in/play.py writes: templates of records, each with the
 * places of the fields that are filled in when it is played. The part of the CUDA driver is played by
 * standin_launch and its like, which a test calls on a thread of the program.
 *
 * Environment:
 *   CUPTI_STAND_IN_VERSION        what cuptiGetVersion gives (28)
 *   CUPTI_STAND_IN_ERRORS         "cuptiSubscribe=39,cuptiActivityEnable:22=27": calls that fail, and how
 *   CUPTI_STAND_IN_TAKEN          the name of a tool that has subscribed already
 *   CUPTI_STAND_IN_DIES           the worker ends after this many buffers
 *   CUPTI_STAND_IN_OWN_CLOCK      1: a registered clock is not used
 *   CUPTI_STAND_IN_PLAY           the file of templates, loaded at the first use
 *   CUPTI_STAND_IN_LOG            a file that gets a line for each call
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define KINDS 64
#define NONE 0xffffffffu
enum {
  OK = 0,
  INVALID_PARAMETER = 1,
  INVALID_OPERATION = 7,
  MAX_LIMIT = 12,
  NOT_INITIALIZED = 15,
  INVALID_KIND = 21,
  MULTIPLE_SUBSCRIBERS = 39
};

typedef void (*request)(uint8_t**, size_t*, size_t*);
typedef void (*complete)(void*, uint32_t, uint8_t*, size_t, size_t);
typedef void (*callback)(void*, int, uint32_t, const void*);
typedef uint64_t (*timestamp)(void);

/* Where the fields of a kind lie; NONE: the kind has no such field. */
struct layout {
  uint32_t kind, size, start, end, correlation, thread, process, name, node;
};

struct template {
  uint32_t kind, name; /* name: the number of a text, or NONE */
  int64_t start, duration;
  uint8_t* bytes;
};

/* A buffer of the client's. Records that end later than now are not complete. */
struct buffer {
  struct buffer* next;
  uint8_t* bytes;
  size_t room, valid;
  uint64_t ends;   /* when its last record is complete */
  long thread;     /* whose it is while it is being filled; 0: full */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static request ask;
static complete give;
static callback subscriber;
static void* subscriber_data;
static int subscribed;
static timestamp clock_of_client;
static int enabled[KINDS], system_threads, graph_callbacks, worker_runs;
static struct buffer *buffers, *ready, *ready_last;
static size_t dropped, given, in_hand;
static struct layout layouts[KINDS];
static struct template* templates;
static char** texts;
static uint32_t templates_held, texts_held, correlation;
static uint64_t stream_free;
static uint8_t api_callbacks[3][1024]; /* of the driver's and the runtime's calls, by number */
static __thread void* context;
/* In tests of counters, the stand-in for these is compiled into the same library. */
__attribute__((weak)) void standin_counted(void);

static const char* setting(const char* name) {
  char whole[64];
  snprintf(whole, sizeof whole, "CUPTI_STAND_IN_%s", name);
  return getenv(whole);
}

static void note(const char* what, long number) {
  const char* path = setting("LOG");
  FILE* file = path ? fopen(path, "a") : NULL;
  if (!file) return;
  fprintf(file, "%s %ld\n", what, number);
  fclose(file);
}

/* The error that a call is told to give; 0 if none. */
static int told(const char* call, long number) {
  const char* list = setting("ERRORS");
  char whole[96];
  note(call, number);
  if (!list) return OK;
  for (int with = 0; with < 2; with++) {
    if (with)
      snprintf(whole, sizeof whole, "%s:%ld=", call, number);
    else
      snprintf(whole, sizeof whole, "%s=", call);
    const char* at = strstr(list, whole);
    if (at && (at == list || at[-1] == ',')) return atoi(at + strlen(whole));
  }
  return OK;
}

static uint64_t now(void) {
  struct timespec at;
  if (clock_of_client && !setting("OWN_CLOCK")) return clock_of_client();
  clock_gettime(CLOCK_REALTIME, &at);
  return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

/* ----------------------------------------------------------------------------------------- the worker */

static void make_ready(struct buffer* one) {
  for (struct buffer** at = &buffers; *at; at = &(*at)->next)
    if (*at == one) {
      *at = one->next;
      break;
    }
  one->next = NULL;
  if (ready_last)
    ready_last->next = one;
  else
    ready = one;
  ready_last = one;
  pthread_cond_signal(&work);
}

static void* hand_back(void* nothing) {
  const char* dies = setting("DIES");
  (void)nothing;
  pthread_mutex_lock(&lock);
  while (!dies || given < (size_t)atol(dies)) {
    while (!ready) pthread_cond_wait(&work, &lock);
    struct buffer* one = ready;
    if (!(ready = one->next)) ready_last = NULL;
    complete to = give;
    in_hand++;
    given++;
    pthread_mutex_unlock(&lock);
    if (to) to(NULL, 0, one->bytes, one->room, one->valid);
    free(one);
    pthread_mutex_lock(&lock);
    in_hand--;
    pthread_cond_broadcast(&done);
  }
  worker_runs = -1; /* dead */
  pthread_cond_broadcast(&done);
  pthread_mutex_unlock(&lock);
  return NULL;
}

static void start_worker(void) {
  pthread_t thread;
  if (worker_runs) return;
  worker_runs = 1;
  pthread_create(&thread, NULL, hand_back, NULL);
  pthread_detach(thread);
}

/* ------------------------------------------------------------------------------------------ recording */

static struct buffer* buffer_for(size_t many) {
  long thread = syscall(SYS_gettid);
  struct buffer* one = buffers;
  while (one && one->thread != thread) one = one->next;
  if (one && one->room - one->valid >= many) return one;
  if (one) {
    one->thread = 0;
    if (one->ends <= now()) make_ready(one);
  }
  uint8_t* bytes = NULL;
  size_t room = 0, most = 0;
  request from = ask;
  pthread_mutex_unlock(&lock); /* the client's callback runs without our lock, as it may call us */
  if (from) from(&bytes, &room, &most);
  pthread_mutex_lock(&lock);
  if (!bytes || room < many) {
    dropped++;
    return NULL;
  }
  one = calloc(1, sizeof *one);
  memset(bytes, 0, room);
  one->bytes = bytes;
  one->room = room;
  one->thread = thread;
  one->next = buffers;
  buffers = one;
  start_worker();
  return one;
}

static void fill32(uint8_t* record, uint32_t at, uint32_t value) {
  if (at != NONE) memcpy(record + at, &value, 4);
}
static void fill64(uint8_t* record, uint32_t at, uint64_t value) {
  if (at != NONE) memcpy(record + at, &value, 8);
}

/* Add a record like the template, if its kind is enabled. */
static void record(const struct template* like, uint64_t start, uint64_t end, uint32_t number) {
  const struct layout* places = layouts + like->kind;
  uint64_t node = 0;
  if (!enabled[like->kind] || !places->size) return;
  if (places->node != NONE) memcpy(&node, like->bytes + places->node, 8);
  if (node && enabled[51]) return; /* graphs are traced as wholes, in place of their nodes */
  struct buffer* one = buffer_for(places->size);
  if (!one) return;
  uint8_t* at = one->bytes + one->valid;
  memcpy(at, like->bytes, places->size);
  memcpy(at, &like->kind, 4);
  fill64(at, places->start, start);
  fill64(at, places->end, end);
  fill32(at, places->correlation, number);
  fill32(at, places->process, (uint32_t)getpid());
  fill32(at, places->thread,
      system_threads ? (uint32_t)syscall(SYS_gettid) : (uint32_t)(uintptr_t)pthread_self());
  if (like->name != NONE) fill64(at, places->name, (uint64_t)(uintptr_t)texts[like->name]);
  one->valid += places->size;
  if (end > one->ends) one->ends = end;
}

/* Give back times of 0 in place of those that lie ahead: these records are not complete. */
static void cut(struct buffer* one) {
  uint64_t at_end = now();
  for (size_t at = 0; at < one->valid;) {
    uint32_t kind;
    uint64_t end;
    memcpy(&kind, one->bytes + at, 4);
    const struct layout* places = layouts + kind;
    if (places->end != NONE) {
      memcpy(&end, one->bytes + at + places->end, 8);
      if (end > at_end) fill64(one->bytes + at, places->start, 0), fill64(one->bytes + at, places->end, 0);
    }
    at += places->size;
  }
}

static void flush(int forced) {
  struct buffer* following;
  for (struct buffer* one = buffers; one; one = following) {
    following = one->next;
    if (one->ends > now() && !forced) continue;
    if (one->ends > now()) cut(one);
    make_ready(one);
  }
  while ((ready || in_hand) && worker_runs > 0) pthread_cond_wait(&done, &lock);
}

/* ------------------------------------------------------------------------- played by tests: the driver */

static int load(const char* path) {
  struct {
    char magic[8];
    uint32_t layouts, texts, templates, rest;
  } head;
  FILE* file = fopen(path, "rb");
  if (!file || fread(&head, sizeof head, 1, file) != 1 || memcmp(head.magic, "STANDIN1", 8)) return -1;
  for (uint32_t i = 0; i < head.layouts; i++) {
    struct layout one;
    if (fread(&one, sizeof one, 1, file) != 1 || one.kind >= KINDS) return -1;
    layouts[one.kind] = one;
  }
  texts = calloc(head.texts, sizeof *texts);
  for (uint32_t i = 0; i < head.texts; i++) {
    uint32_t many;
    if (fread(&many, 4, 1, file) != 1) return -1;
    texts[i] = calloc(1, many + 1);
    if (many && fread(texts[i], many, 1, file) != 1) return -1;
  }
  templates = calloc(head.templates, sizeof *templates);
  for (uint32_t i = 0; i < head.templates; i++) {
    struct {
      uint32_t kind, name;
      int64_t start, duration;
    } one;
    if (fread(&one, sizeof one, 1, file) != 1 || one.kind >= KINDS || !layouts[one.kind].size) return -1;
    templates[i] = (struct template){one.kind, one.name, one.start, one.duration, NULL};
    templates[i].bytes = malloc(layouts[one.kind].size);
    if (fread(templates[i].bytes, layouts[one.kind].size, 1, file) != 1) return -1;
  }
  texts_held = head.texts;
  templates_held = head.templates;
  fclose(file);
  return (int)templates_held;
}

/* Load the templates; return how many there are, -1 if the file is none. */
API int standin_load(const char* path) {
  pthread_mutex_lock(&lock);
  int many = load(path);
  pthread_mutex_unlock(&lock);
  return many;
}

static void load_at_first(void) {
  if (!templates_held && setting("PLAY") && load(setting("PLAY")) < 0) abort();
}

/* CUpti_CallbackData. */
struct api_data {
  int site;
  const char* function;
  const void* params;
  void* result;
  const char* symbol;
  void* context;
  uint32_t context_uid;
  uint64_t* data;
  uint32_t correlation;
};

/* Tell the subscriber that a launch begins or has ended. */
static void tell_launch(
    int site, int domain, uint32_t cbid, const char* symbol, uint32_t number, int result) {
  struct api_data data = {
      site, "", NULL, &result, symbol, context ? context : (void*)0x1000, 1, NULL, number};
  if (subscribed && subscriber && cbid < 1024 && api_callbacks[domain][cbid])
    subscriber(subscriber_data, domain, cbid, &data);
}

/* The context that is current in this thread, as the launches of it tell. */
API void standin_context(uint64_t one) { context = (void*)(uintptr_t)one; }

/* Make the CUDA call of template `call` on this thread, which starts the work of template `work`: one after
 * another on one stream, or, with `base`, at the template's own time after base. Return the correlation id. */
API uint32_t standin_launch(uint32_t call, uint32_t work_, uint64_t base) {
  pthread_mutex_lock(&lock);
  load_at_first();
  uint32_t number = ++correlation, cbid = 0;
  int domain = 2;
  const char* symbol = NULL;
  int kernel = work_ < templates_held && (templates[work_].kind == 3 || templates[work_].kind == 10);
  if (call < templates_held) {
    memcpy(&cbid, templates[call].bytes + 4, 4);
    domain = templates[call].kind == 4 ? 1 : 2;
  }
  if (kernel && templates[work_].name != NONE) symbol = texts[templates[work_].name];
  pthread_mutex_unlock(&lock); /* callbacks run without our lock */
  tell_launch(0, domain, cbid, symbol, number, 0);
  if (domain == 2) tell_launch(0, 1, 307, symbol, number, 0); /* the runtime's launch calls the driver's */
  if (kernel && standin_counted) standin_counted();
  if (domain == 2) tell_launch(1, 1, 307, symbol, number, 0);
  pthread_mutex_lock(&lock);
  uint64_t begin = now();
  if (work_ < templates_held) {
    const struct template* one = templates + work_;
    uint64_t start = base ? base + (uint64_t)one->start : begin + 1000;
    if (!base && start < stream_free) start = stream_free;
    uint64_t end = start + (uint64_t)one->duration;
    if (!base) stream_free = end;
    record(one, start, end, number);
  }
  if (call < templates_held) record(templates + call, begin, now(), number);
  pthread_mutex_unlock(&lock);
  tell_launch(1, domain, cbid, symbol, number, 0);
  return number;
}

/* Add the record of a template as it stands, with the given times. */
API void standin_record(uint32_t like, uint64_t start, uint64_t end, uint32_t number) {
  pthread_mutex_lock(&lock);
  load_at_first();
  if (like < templates_held) record(templates + like, start, end, number);
  pthread_mutex_unlock(&lock);
}

API uint64_t standin_now(void) { return now(); }

/* A node of a CUDA graph is made (original 0) or cloned on this thread; a clone is reported as made first. */
API void standin_graph_node(uint64_t graph, uint64_t node, uint64_t original) {
  void* data[] = {
      (void*)(uintptr_t)graph, NULL, (void*)(uintptr_t)node, (void*)(uintptr_t)original, NULL, NULL, NULL};
  void* resource[] = {NULL, NULL, data};
  if (!subscribed || !subscriber || !graph_callbacks) return;
  subscriber(subscriber_data, 3, 13, resource);
  if (original) subscriber(subscriber_data, 3, 20, resource);
}

/* CUPTI meets an error of its own. */
API void standin_fails(int result, const char* message, int fatal) {
  struct {
    int result;
    const char* message;
  } data = {result, message};
  if (subscribed && subscriber) subscriber(subscriber_data, 6, fatal ? 1 : 2, &data);
}

/* The text of number i comes to lie elsewhere: a module was unloaded and another loaded in its place. */
API void standin_rename(uint32_t i, const char* text) {
  pthread_mutex_lock(&lock);
  if (i < texts_held && strlen(text) <= strlen(texts[i])) strcpy(texts[i], text);
  pthread_mutex_unlock(&lock);
}

API int standin_enabled(uint32_t kind) { return kind < KINDS && enabled[kind]; }
API int standin_subscribed(void) { return subscribed; }
API int standin_system_threads(void) { return system_threads; }

/* -------------------------------------------------------------------------------------- CUPTI's calls */

API int cuptiGetVersion(uint32_t* version) {
  int error = told("cuptiGetVersion", 0);
  if (!error) *version = setting("VERSION") ? (uint32_t)atol(setting("VERSION")) : 28;
  return error;
}

API int cuptiGetTimestamp(uint64_t* at) {
  *at = now();
  return told("cuptiGetTimestamp", 0);
}

API int cuptiSubscribe(void** handle, callback function, void* data) {
  int error = told("cuptiSubscribe", 0);
  if (error) return error;
  pthread_mutex_lock(&lock);
  if (subscribed || setting("TAKEN")) {
    error = MULTIPLE_SUBSCRIBERS;
  } else {
    load_at_first();
    subscribed = 1;
    subscriber = function;
    subscriber_data = data;
    *handle = &subscribed;
  }
  pthread_mutex_unlock(&lock);
  return error;
}

struct subscriber_params {
  size_t size;
  const char* name;
  char* old;
  size_t old_size;
  uint8_t many, padding[7];
};

#ifndef WITHOUT_SUBSCRIBE_V2
API int cuptiSubscribe_v2(void** handle, callback function, void* data, struct subscriber_params* params) {
  int error = cuptiSubscribe(handle, function, data);
  if (error == MULTIPLE_SUBSCRIBERS && params && params->old && setting("TAKEN"))
    snprintf(params->old, params->old_size, "%s", setting("TAKEN"));
  return error;
}
#endif

API int cuptiUnsubscribe(void* handle) {
  int error = told("cuptiUnsubscribe", 0);
  if (error || handle != &subscribed) return error ? error : INVALID_PARAMETER;
  subscribed = 0;
  graph_callbacks = 0;
  memset(api_callbacks, 0, sizeof api_callbacks);
  return OK;
}

API int cuptiEnableCallback(uint32_t enable, void* handle, int domain, uint32_t cbid) {
  int error = told("cuptiEnableCallback", domain * 1000 + (long)cbid);
  if (!error && handle != &subscribed) error = INVALID_PARAMETER;
  if (!error && domain == 3) graph_callbacks = (int)enable;
  if (!error && (domain == 1 || domain == 2)) {
    if (cbid >= 1024) return INVALID_PARAMETER;
    api_callbacks[domain][cbid] = (uint8_t)enable;
  }
  return error;
}

API int cuptiActivityRegisterCallbacks(request requested, complete completed) {
  int error = told("cuptiActivityRegisterCallbacks", 0);
  if (error || !requested || !completed) return error ? error : INVALID_PARAMETER;
  ask = requested;
  give = completed;
  return OK;
}

#ifndef WITHOUT_ENABLE
API int cuptiActivityEnable(uint32_t kind) {
  int error = told("cuptiActivityEnable", kind);
  if (error || kind >= KINDS) return error ? error : INVALID_KIND;
  pthread_mutex_lock(&lock);
  load_at_first();
  enabled[kind] = 1;
  if (kind == 8 || kind == 9) /* of what is there already */
    for (uint32_t i = 0; i < templates_held; i++)
      if (templates[i].kind == kind) record(templates + i, 0, 0, 0);
  pthread_mutex_unlock(&lock);
  return OK;
}
#endif

API int cuptiActivityDisable(uint32_t kind) {
  int error = told("cuptiActivityDisable", kind);
  if (!error && kind < KINDS) enabled[kind] = 0;
  return error;
}

API int cuptiActivityFlushAll(uint32_t flag) {
  int error = told("cuptiActivityFlushAll", flag);
  if (error || !give) return error ? error : INVALID_OPERATION;
  pthread_mutex_lock(&lock);
  flush(flag & 1);
  pthread_mutex_unlock(&lock);
  return OK;
}

#ifndef WITHOUT_NEXT_RECORD
API int cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid, uint8_t** at) {
  uint32_t kind;
  if (!buffer) return INVALID_PARAMETER;
  if (!*at) {
    if (!valid) return MAX_LIMIT;
    *at = buffer;
    return OK;
  }
  memcpy(&kind, *at, 4);
  if (kind >= KINDS || !layouts[kind].size) return INVALID_KIND;
  if (*at + layouts[kind].size >= buffer + valid) return MAX_LIMIT;
  *at += layouts[kind].size;
  return OK;
}
#endif

API int cuptiActivityGetNumDroppedRecords(void* context, uint32_t stream, size_t* many) {
  (void)context, (void)stream;
  int error = told("cuptiActivityGetNumDroppedRecords", 0);
  if (error) return error;
  pthread_mutex_lock(&lock);
  *many = dropped;
  dropped = 0;
  pthread_mutex_unlock(&lock);
  return OK;
}

#ifndef WITHOUT_CLOCK
API int cuptiActivityRegisterTimestampCallback(timestamp function) {
  int error = told("cuptiActivityRegisterTimestampCallback", 0);
  if (error || !function) return error ? error : INVALID_PARAMETER;
  clock_of_client = function;
  stream_free = 0; /* it is a time of the clock before */
  return OK;
}
#endif

#ifndef WITHOUT_THREAD_IDS
API int cuptiSetThreadIdType(int type) {
  int error = told("cuptiSetThreadIdType", type);
  if (!error) system_threads = type;
  return error;
}
API int cuptiGetThreadIdType(int* type) {
  *type = system_threads;
  return OK;
}
#endif

#ifndef WITHOUT_GRAPHS
/* A node's id is the number that stands for it. */
API int cuptiGetGraphNodeId(void* node, uint64_t* id) {
  *id = (uint64_t)(uintptr_t)node;
  return OK;
}
API int cuptiGetGraphId(void* graph, uint32_t* id) {
  *id = (uint32_t)(uintptr_t)graph;
  return OK;
}
#endif

API int cuptiGetResultString(int result, const char** text) {
  *text = result == MULTIPLE_SUBSCRIBERS ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
      : result == 43                     ? "CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED"
      : result == 35                     ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
      : result == NOT_INITIALIZED        ? "CUPTI_ERROR_NOT_INITIALIZED"
                                         : "<unknown>";
  return OK;
}
