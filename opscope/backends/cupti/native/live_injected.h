/* What happens when CUDA's driver loads the helper, as CUDA_INJECTION64_PATH tells it to.
 *
 * In a Python that opscope records, the driver's call says that the program uses CUDA, and waits a while for
 * Python to begin the recording, on a thread of its own: work before that would be lost. In any other program
 * under `opscope run` the helper records alone: it makes a part of the recording (core/recording_format.py)
 * with CUPTI's activity and no ranges. What it must know
 * comes in the environment: OPSCOPE_RUN_DIR, the run's folder; OPSCOPE_CUPTI_LIBRARY, the libcupti;
 * OPSCOPE_CUPTI_LAYOUTS, "version:kind:bytes:text,..."; OPSCOPE_CUPTI_HOST, the host's name in the recording;
 * OPSCOPE_CUDA_GRAPH_TRACE, "graph" to trace CUDA graphs as wholes.
 * Every failure is written into the part and the program goes on.
 */
#include <dlfcn.h>
#include <sys/stat.h>

static int injected, attended, alone, ticking;
static int beginners, late; /* threads of Python's that begin a recording; whether one was too slow */
static pthread_cond_t told = PTHREAD_COND_INITIALIZER, begun = PTHREAD_COND_INITIALIZER;
/* CUPTI took 1.3 s to begin on an H100 beside ten other programs. */
#define BEGIN_SECONDS 5
static pthread_t ticker;
static int facts_file = -1;
static int system_clock; /* CUPTI did not take the recorder's clock */

static struct {
  void* handle;
  int (*version)(uint32_t*), (*timestamp)(uint64_t*);
  int (*subscribe)(void**, void*, void*), (*unsubscribe)(void*);
  int (*callback)(uint32_t, void*, int, uint32_t);
  int (*callbacks)(void*, void*), (*clock)(void*), (*thread_ids)(int);
  int (*enable)(uint32_t), (*disable)(uint32_t), (*flush)(uint32_t);
  int (*dropped)(void*, uint32_t, size_t*);
  int (*text)(int, const char**);
} cupti;
/* 51, CUDA graphs as wholes, takes the place of their kernels: where that is asked for or kernels are refused. */
static const uint32_t wanted[] = {10, 51, 1, 22, 2, 5, 4, 39, 38, 36, 17, 49, 50, 37, 8, 9};

/* Wait until CUDA is initialised; return whether it is. */
API int opscope_cupti_injected(uint32_t milliseconds) {
  uint64_t until = read_clock(CLOCK_REALTIME) + 1000000u * (uint64_t)milliseconds;
  struct timespec at = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
  int found;
  pthread_mutex_lock(&lock);
  while (!injected && milliseconds && !pthread_cond_timedwait(&told, &lock, &at)) continue;
  found = injected;
  pthread_mutex_unlock(&lock);
  return found;
}

/* Add to the threads that CUDA's initialisation waits for; return whether it has stopped waiting for one. */
API int opscope_cupti_beginners(int more) {
  pthread_mutex_lock(&lock);
  beginners += more;
  int found = late;
  pthread_cond_broadcast(&begun);
  pthread_mutex_unlock(&lock);
  return found;
}

/* Wait until Python has begun, without Python's lock, which its thread needs. */
static void await_beginners(void) {
  int (*held)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Check");
  void* (*mine)(void) = (void* (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState");
  void* (*leave)(void) = (void* (*)(void))dlsym(RTLD_DEFAULT, "PyEval_SaveThread");
  void (*back)(void*) = (void (*)(void*))dlsym(RTLD_DEFAULT, "PyEval_RestoreThread");
  if (!held || !mine || !leave || !back) return;
  void* state = mine() && held() ? leave() : NULL;
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  at.tv_sec += BEGIN_SECONDS;
  pthread_mutex_lock(&lock);
  while (beginners > 0 && !late) late = pthread_cond_timedwait(&begun, &lock, &at) != 0;
  pthread_mutex_unlock(&lock);
  if (state) back(state);
}

/* Say that Python records this process, so that the helper does not record alone. */
API void opscope_cupti_attend(void) { attended = 1; }

static void say(int file, const char* format, ...) __attribute__((format(printf, 2, 3)));
static void say(int file, const char* format, ...) {
  char text[1024];
  va_list rest;
  va_start(rest, format);
  int many = vsnprintf(text, sizeof text - 1, format, rest);
  va_end(rest);
  if (many <= 0 || file < 0) return;
  if ((size_t)many > sizeof text - 2) many = sizeof text - 2;
  text[many] = '\n';
  write_all(file, text, (size_t)many + 1);
}

/* A result that is an error is noted, with what it means for the recording. */
static int worked(int result, const char* what) {
  const char* text = "an error";
  if (!result) return 1;
  if (cupti.text) cupti.text(result, &text);
  say(facts_file, "{\"note\": \"CUPTI: %s: %s (%d)\", \"severity\": \"warning\", \"how_many\": 1}", what,
      text ? text : "an error", result);
  return 0;
}

static void pair_clocks(void) {
  uint64_t theirs, before = read_clock(CLOCK_MONOTONIC);
  if (!system_clock) {
    say(lines, "{\"clock\": [%llu, %llu, 0]}", (unsigned long long)before, (unsigned long long)before);
  } else if (!cupti.timestamp(&theirs)) {
    uint64_t after = read_clock(CLOCK_MONOTONIC);
    say(lines, "{\"clock\": [%llu, %llu, %llu]}", (unsigned long long)theirs,
        (unsigned long long)(before + (after - before) / 2), (unsigned long long)((after - before + 1) / 2));
  }
  before = read_clock(CLOCK_MONOTONIC);
  theirs = read_clock(CLOCK_REALTIME);
  uint64_t after = read_clock(CLOCK_MONOTONIC);
  say(facts_file, "{\"clock\": [%llu, %llu, %llu]}", (unsigned long long)(before + (after - before) / 2),
      (unsigned long long)theirs, (unsigned long long)((after - before + 1) / 2));
}

static uint64_t opened; /* when the recording of kernels began */

/* Until when kernels are known: what a process that is killed leaves, and in the end the whole. */
static void tell_window(uint64_t until, const char* ended) {
  say(facts_file, "{\"window\": [%llu, %llu], \"chosen\": false, \"steps\": [null, null], \"ended\": %s}",
      (unsigned long long)opened, (unsigned long long)until, ended);
}

static void hand_over(uint32_t flag) {
  size_t many = 0;
  uint64_t at = read_clock(CLOCK_MONOTONIC);
  cupti.flush(flag);
  if (cupti.dropped && !cupti.dropped(NULL, 0, &many) && many)
    say(lines, "{\"dropped\": %zu, \"context\": 0, \"stream\": 0}", many);
  pair_clocks();
  if (!flag) tell_window(at, "\"the process ended abruptly\"");
}

static void* tick(void* nothing) {
  struct timespec second = {1, 0};
  (void)nothing;
  for (;;) {
    nanosleep(&second, NULL);
    pthread_mutex_lock(&lock);
    int goes_on = ticking && !now.dead;
    pthread_mutex_unlock(&lock);
    if (!goes_on) return NULL;
    hand_over(0);
  }
}

static void finish_alone(void) {
  struct state state;
  pthread_mutex_lock(&lock);
  int begun = ticking && !now.dead;
  ticking = 0;
  pthread_mutex_unlock(&lock);
  if (!begun) return; /* a forked child: the recording is its parent's */
  hand_over(1);
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) cupti.disable(wanted[i]);
  int file = lines;
  opscope_cupti_end(10000);
  opscope_cupti_state(&state);
  if (state.lost_buffers || state.refused || state.unread_names || state.wrong_sizes || state.outstanding) {
    char text[400];
    snprintf(text, sizeof text,
        "lost: %llu buffers with %llu records; %llu times no buffer was free; %llu names could not be read; "
        "%llu kinds of records have another size than their layout; %llu buffers did not come back",
        (unsigned long long)state.lost_buffers, (unsigned long long)state.lost_records,
        (unsigned long long)state.refused, (unsigned long long)state.unread_names,
        (unsigned long long)state.wrong_sizes, (unsigned long long)state.outstanding);
    say(facts_file, "{\"note\": \"CUPTI: %s\", \"severity\": \"warning\", \"how_many\": 1}", text);
  }
  uint64_t end = read_clock(CLOCK_MONOTONIC);
  tell_window(end, "null");
  say(file, "{\"stop\": %llu}", (unsigned long long)end);
  say(facts_file, "{\"stop\": %llu}", (unsigned long long)end);
}

/* ------------------------------------------------------------------------------ the recording's part */

static ssize_t slurp(const char* path, char* to, size_t room) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return -1;
  ssize_t many = read(file, to, room - 1);
  close(file);
  to[many > 0 ? many : 0] = 0;
  return many;
}

/* When this process began, in Unix ns: as core/capture/process.py counts it. */
static long long start_time(void) {
  static char text[1 << 16];
  long long boot = 0, ticks = 0;
  if (slurp("/proc/stat", text, sizeof text) <= 0) return 0;
  char* at = strstr(text, "\nbtime ");
  if (at) boot = atoll(at + 7);
  if (slurp("/proc/self/stat", text, sizeof text) <= 0 || !(at = strrchr(text, ')'))) return 0;
  for (int field = 2; field < 22 && at; field++) at = strchr(at + 1, ' ');
  if (at) ticks = atoll(at + 1);
  long second = sysconf(_SC_CLK_TCK);
  return boot * 1000000000ll + (second > 0 ? ticks * 1000000000ll / second : 0);
}

static int file_in(const char* folder, const char* name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

static char folder[4000]; /* the part's */

/* Make the part, with the files that every part has; return 0 if they are open. */
static int make_part(const char* root) {
  char host[128] = "host", boot[64] = "", name[64] = "program", safe[128];
  static struct line meta;
  const char* given = getenv("OPSCOPE_CUPTI_HOST");
  char path[4096], number[256];
  if (given && *given)
    snprintf(host, sizeof host, "%s", given);
  else
    gethostname(host, sizeof host - 1);
  snprintf(safe, sizeof safe, "%.80s", host);
  for (char* at = safe; *at; at++)
    if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-", *at)) *at = '_';
  slurp("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
  slurp("/proc/self/comm", name, sizeof name);
  boot[strcspn(boot, "\n")] = name[strcspn(name, "\n")] = 0;
  long long began = start_time();
  snprintf(folder, sizeof folder, "%s/part-%s-%d-%lld-cupti", root, safe, (int)getpid(), began);
  if (mkdir(folder, 0777)) return errno;
  puts_to(&meta,
      "{\"format\": \"opscope-recording\", \"version\": 1, \"clock\": \"perf_counter_ns\", \"host\": ");
  put_quoted(&meta, host, strlen(host));
  puts_to(&meta, ", \"boot\": ");
  put_quoted(&meta, boot, strlen(boot));
  snprintf(number, sizeof number,
      ", \"pid\": %d, \"parent\": %d, \"start_time\": %lld, \"rank\": null, \"world_size\": null, "
      "\"local_rank\": null, \"name\": ",
      (int)getpid(), (int)getppid(), began);
  puts_to(&meta, number);
  put_quoted(&meta, name, strlen(name));
  puts_to(&meta, ", \"command\": [], \"versions\": {}, \"private\": ");
  const char* private = getenv("OPSCOPE_PRIVATE");
  puts_to(&meta, private && !strcmp(private, "1") ? "true}\n" : "false}\n");
  int strings = file_in(folder, "strings.jsonl"), events = file_in(folder, "events.bin");
  if (strings >= 0) close(strings);
  if (events >= 0) close(events);
  facts_file = file_in(folder, "facts.jsonl");
  snprintf(path, sizeof path, "%s/meta.json", folder);
  int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0 || write_all(file, meta.text, meta.length)) return EIO;
  close(file);
  return facts_file < 0 ? EIO : 0;
}

/* ------------------------------------------------------------------------------------ recording alone */

static int take_layouts(uint32_t version, const char* at) {
  uint32_t of, kind, bytes, text;
  int many = 0, used;
  while (at && sscanf(at, "%u:%u:%u:%u%n", &of, &kind, &bytes, &text, &used) == 4) {
    if (of == version) opscope_cupti_layout(kind, bytes, text), many++;
    at += used;
    if (*at != ',') break;
    at++;
  }
  return many;
}

static void record_alone(const char* root, const char* library) {
  static void* subscription;
  uint32_t number = 0;
  int raw_file = -1, lines_file = -1;
  struct {
    const char* name;
    void** to;
    int needed;
  } calls[] = {
      {"cuptiGetVersion", (void**)&cupti.version, 1},
      {"cuptiGetTimestamp", (void**)&cupti.timestamp, 1},
      {"cuptiSubscribe", (void**)&cupti.subscribe, 1},
      {"cuptiUnsubscribe", (void**)&cupti.unsubscribe, 1},
      {"cuptiActivityRegisterCallbacks", (void**)&cupti.callbacks, 1},
      {"cuptiActivityEnable", (void**)&cupti.enable, 1},
      {"cuptiActivityDisable", (void**)&cupti.disable, 1},
      {"cuptiActivityFlushAll", (void**)&cupti.flush, 1},
      {"cuptiEnableCallback", (void**)&cupti.callback, 0},
      {"cuptiActivityRegisterTimestampCallback", (void**)&cupti.clock, 0},
      {"cuptiSetThreadIdType", (void**)&cupti.thread_ids, 0},
      {"cuptiActivityGetNumDroppedRecords", (void**)&cupti.dropped, 0},
      {"cuptiGetResultString", (void**)&cupti.text, 0},
  };
  if (make_part(root)) return; /* there is nowhere to say it */
  say(facts_file, "{\"gpu\": true}");
  say(facts_file,
      "{\"backend\": \"cupti\", \"reason\": \"CUDA's driver loaded it into the program\", "
      "\"better\": []}");
  say(facts_file, "{\"start\": %llu}", (unsigned long long)read_clock(CLOCK_MONOTONIC));
  cupti.handle = dlopen(library, RTLD_NOW);
  int missing = !cupti.handle;
  for (size_t i = 0; cupti.handle && i < sizeof calls / sizeof *calls; i++) {
    *calls[i].to = dlsym(cupti.handle, calls[i].name);
    if (!*calls[i].to && calls[i].needed) missing = 1;
  }
  if (missing || cupti.version(&number)) {
    say(facts_file,
        "{\"note\": \"kernels not captured: libcupti cannot be loaded or lacks a call\", "
        "\"severity\": \"warning\", \"how_many\": 1}");
    return;
  }
  opscope_cupti_configure(size, most, 8ull << 30, dlsym(cupti.handle, "cuptiActivityGetNextRecord"),
      dlsym(cupti.handle, "cuptiGetGraphNodeId"), dlsym(cupti.handle, "cuptiGetGraphId"));
  int known = take_layouts(number, getenv("OPSCOPE_CUPTI_LAYOUTS"));
  int result = cupti.subscribe(&subscription, (void*)opscope_cupti_called, NULL);
  if (!worked(result, "kernels not captured: the subscription failed") || opscope_cupti_begin()) return;
  system_clock = !cupti.clock || !worked(cupti.clock((void*)opscope_cupti_clock), "its clock is used");
  system_threads = cupti.thread_ids && worked(cupti.thread_ids(1), "threads may not be told apart");
  result = cupti.callbacks((void*)opscope_cupti_requested, (void*)opscope_cupti_completed);
  if (!worked(result, "kernels not captured: the callbacks were not taken")) return;
  static struct line first_line;
  char text[32];
  int any = 0;
  puts_to(&first_line, "{\"version\": ");
  put(&first_line, text, (size_t)snprintf(text, sizeof text, "%u", number));
  puts_to(&first_line, ", \"kinds\": [");
  struct {
    uint32_t kind;
    int result;
  } failed[sizeof wanted / sizeof *wanted];
  int failures = 0;
  const char* graphs = getenv("OPSCOPE_CUDA_GRAPH_TRACE");
  int whole = graphs && !strcmp(graphs, "graph");
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    if (wanted[i] == 51 && !whole && !failures) continue;
    result = cupti.enable(wanted[i]);
    if (result)
      failed[failures].kind = wanted[i], failed[failures++].result = result;
    else
      put(&first_line, text, (size_t)snprintf(text, sizeof text, any++ ? ", %u" : "%u", wanted[i]));
  }
  puts_to(&first_line, "], \"pointer_bytes\": 8}");
  raw_file = file_in(folder, "cupti.raw");
  lines_file = file_in(folder, "cupti.jsonl");
  if (raw_file < 0 || lines_file < 0) return;
  lines = lines_file; /* what went wrong so far is in the part's facts alone: this line is the first */
  send_line(&first_line);
  for (int i = 0; i < failures; i++) {
    snprintf(text, sizeof text, "no records of kind %u", failed[i].kind);
    worked(failed[i].result, text);
  }
  if (cupti.callback && node_of)
    cupti.callback(1, subscription, 3, 13), cupti.callback(1, subscription, 3, 20);
  if (cupti.callback) cupti.callback(1, subscription, 6, 1), cupti.callback(1, subscription, 6, 2);
  if (!known)
    say(facts_file,
        "{\"note\": \"CUPTI: the layouts of version %u are not known, so names are not read\", "
        "\"severity\": \"warning\", \"how_many\": 1}",
        number);
  opscope_cupti_open(raw_file, lines_file);
  opened = read_clock(CLOCK_MONOTONIC);
  say(facts_file, "{\"profiling\": %llu, \"gives\": \"kernels\", \"profiler\": \"CUPTI\"}",
      (unsigned long long)opened);
  pair_clocks();
  ticking = 1;
  pthread_create(&ticker, NULL, tick, NULL);
  pthread_detach(ticker);
  atexit(finish_alone);
}

/* Called by the driver while the program initialises CUDA. */
API int InitializeInjection(void) {
  const char *root = getenv("OPSCOPE_RUN_DIR"), *library = getenv("OPSCOPE_CUPTI_LIBRARY");
  pthread_mutex_lock(&lock);
  int first_time = !injected;
  injected = 1;
  pthread_cond_broadcast(&told);
  pthread_mutex_unlock(&lock);
  if (first_time && !attended && !alone && root && *root && library && *library) {
    alone = 1;
    record_alone(root, library);
  }
  if (first_time && attended) await_beginners();
  return 1;
}
