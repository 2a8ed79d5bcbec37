/* A libcupti that measures counters of made-up kernels, by the calls of cupti_range_profiler.h,
 * cupti_pmsampling.h and cupti_profiler_host.h. It checks what the real one checks: sizes of structures, the
 * order of calls, sizes of buffers. The value of counter c in range r is 1000 * (c's length) + r.
 *
 * With -DBESIDE_ACTIVITY it is compiled into the stand-in of tests/cupti_stand_in, whose launches it counts, and
 * CUPTI_STAND_IN_ERRORS names calls that fail, as there. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define API __attribute__((visibility("default")))
#define CHECK(last)                                                  \
  do {                                                               \
    size_t least = offsetof(__typeof__(*p), last) + sizeof(p->last); \
    if (p->size < least) return 1;                                   \
    if (!strcmp(failing, __func__)) return failing_with;             \
    if (told(__func__)) return told(__func__);                       \
  } while (0)

static char failing[64];
static int failing_with;
static int ranges; /* in all: names of ranges go on after a stop, as an H200's did */
static int launched, room, decoded, enabled, hosts, started, passes = 1, overflow, taken;
static size_t configured;
static int host_kind, two_passes;
static char last_config[8];
static char name_of_range[32];

API void standin_fail(const char* call, int code) {
  snprintf(failing, sizeof failing, "%s", call);
  failing_with = code;
}
static int told(const char* call) {
  const char* list = getenv("CUPTI_STAND_IN_ERRORS");
  char whole[96];
  snprintf(whole, sizeof whole, "%s=", call);
  const char* at = list ? strstr(list, whole) : NULL;
  return at && (at == list || at[-1] == ',') ? atoi(at + strlen(whole)) : 0;
}
#ifdef BESIDE_ACTIVITY
API void standin_counted(void) { /* called by several threads at once, without a lock */
  if (started) __atomic_fetch_add(&launched, 1, __ATOMIC_RELAXED);
}
#else
API void standin_launch(int many) {
  if (started) launched += many;
}
#endif
API void standin_passes(int many) { passes = many; }
API void standin_overflow(int yes) { overflow = yes; }
API int standin_open(void) { return hosts + enabled; }
API void standin_reset(void) {
  failing[0] = 0;
  ranges = launched = room = decoded = enabled = hosts = started = overflow = taken = 0;
  passes = 1;
}

struct none {
  size_t size;
  void* priv;
};
API int cuptiProfilerInitialize(struct none* p) {
  CHECK(priv);
  return 0;
}

struct chip {
  size_t size;
  void* priv;
  size_t device;
  const char* name;
};
API int cuptiDeviceGetChipName(struct chip* p) {
  CHECK(name);
  if (p->device) return 2;
  p->name = "GH100";
  return 0;
}

struct availability {
  size_t size;
  void* priv;
  void* where;
  size_t image_size;
  uint8_t* image;
};
static int availability(struct availability* p) {
  if (p->image == NULL) {
    p->image_size = 64;
    return 0;
  }
  if (p->image_size != 64) return 1;
  memset(p->image, 7, 64);
  return 0;
}
API int cuptiProfilerGetCounterAvailability(struct availability* p) {
  CHECK(image);
  return p->where == NULL ? 3 : availability(p);
}
API int cuptiPmSamplingGetCounterAvailability(struct availability* p) {
  CHECK(image);
  return availability(p);
}

struct host_begin {
  size_t size;
  void* priv;
  int type;
  const char* chip;
  const uint8_t* image;
  void* object;
};
API int cuptiProfilerHostInitialize(struct host_begin* p) {
  CHECK(object);
  if (strcmp(p->chip, "GH100") || p->image == NULL || p->image[63] != 7) return 1;
  hosts++;
  host_kind = p->type;
  p->object = &hosts;
  return 0;
}
/* Some of what the library of CUDA 13 lists for an H200; samples have no SASS counters and no operations. */
static const char* const listed[] = {"dram__bytes", "dram__bytes_read", "dram__bytes_write",
    "sm__inst_executed_pipe_tensor", "sm__ops_path_tensor_src_bf16_dst_fp32", "sm__ops_path_tensor_src_fp8",
    "sm__ops_path_tensor_src_fp8_sparsity_on", "smsp__sass_thread_inst_executed_op_dadd_pred_on",
    "smsp__sass_thread_inst_executed_op_dmul_pred_on", "smsp__sass_thread_inst_executed_op_dfma_pred_on",
    "smsp__sass_thread_inst_executed_op_fadd_pred_on", "smsp__sass_thread_inst_executed_op_fmul_pred_on",
    "smsp__sass_thread_inst_executed_op_ffma_pred_on", "smsp__sass_thread_inst_executed_op_hadd_pred_on",
    "smsp__sass_thread_inst_executed_op_hmul_pred_on", "smsp__sass_thread_inst_executed_op_hfma_pred_on",
    "refused__here"};
static const char* const sampled[] = {
    "dram__bytes", "dram__bytes_read", "dram__bytes_write", "sm__inst_executed_pipe_tensor", "refused__here"};
static const char* const ratios[] = {"sm__cycles_active", "sm__pipe_tensor_cycles_active"};
struct base_metrics {
  size_t size;
  void* priv;
  void* object;
  int type;
  const char* const* names;
  size_t many;
};
API int cuptiProfilerHostGetBaseMetrics(struct base_metrics* p) {
  CHECK(many);
  if (p->object != &hosts) return 1;
  p->names = p->type == 1 ? ratios : host_kind == 1 ? sampled : listed;
  p->many = p->type == 1 ? 2 : p->type ? 0 : host_kind == 1 ? 5 : sizeof listed / sizeof *listed;
  return 0;
}
struct object {
  size_t size;
  void* priv;
  void* object;
};
API int cuptiProfilerHostDeinitialize(struct object* p) {
  CHECK(object);
  if (p->object != &hosts) return 1;
  hosts--;
  return 0;
}
struct metrics {
  size_t size;
  void* priv;
  void* object;
  const char** names;
  size_t many;
};
API int cuptiProfilerHostConfigAddMetrics(struct metrics* p) {
  CHECK(many);
  for (size_t i = 0; i < p->many; i++)
    if (!strncmp(p->names[i], "refused__here", 13) || strchr(p->names[i], '*')) return 1;
  configured = p->many;
  two_passes = 0;
  for (size_t i = 0; i < p->many; i++)
    if (host_kind == 1 && strstr(p->names[i], "inst_executed_pipe")) two_passes = 1;
  return 0;
}
struct config {
  size_t size;
  void* priv;
  void* object;
  size_t image_size;
  uint8_t* image;
};
API int cuptiProfilerHostGetConfigImageSize(struct config* p) {
  size_t least = offsetof(struct config, image_size) + sizeof(size_t);
  if (p->size < least) return 1;
  p->image_size = sizeof last_config;
  return 0;
}
API int cuptiProfilerHostGetConfigImage(struct config* p) {
  CHECK(image);
  if (p->image_size != sizeof last_config) return 1;
  memcpy(p->image, "CONFIG!", 8);
  return 0;
}
struct pass {
  size_t size;
  void* priv;
  size_t image_size;
  uint8_t* image;
  size_t many;
};
API int cuptiProfilerHostGetNumOfPasses(struct pass* p) {
  CHECK(many);
  if (memcmp(p->image, "CONFIG!", 8)) return 1;
  p->many = two_passes ? 2 : passes;
  return 0;
}
struct evaluate {
  size_t size;
  void* priv;
  void* object;
  const uint8_t* image;
  size_t image_size;
  size_t place;
  const char** names;
  size_t many;
  double* values;
};
API int cuptiProfilerHostEvaluateToGpuValues(struct evaluate* p) {
  CHECK(values);
  if (p->image[0] != 9 || p->many != configured) return 1;
  for (size_t i = 0; i < p->many; i++) p->values[i] = 1000.0 * strlen(p->names[i]) + p->place;
  return 0;
}

struct enable {
  size_t size;
  void* priv;
  void* where;
  void* object;
};
static int begin(struct enable* p) {
  if (enabled) return 39;
  enabled = 1;
  p->object = &enabled;
  return 0;
}
API int cuptiRangeProfilerEnable(struct enable* p) {
  CHECK(object);
  return p->where ? begin(p) : 3;
}
API int cuptiPmSamplingEnable(struct enable* p) {
  CHECK(object);
  return begin(p);
}
static int end(struct object* p) {
  if (p->object != &enabled) return 1;
  enabled = started = 0;
  return 0;
}
API int cuptiRangeProfilerDisable(struct object* p) {
  CHECK(object);
  return end(p);
}
API int cuptiPmSamplingDisable(struct object* p) {
  CHECK(object);
  return end(p);
}

struct range_size {
  size_t size;
  void* priv;
  void* object;
  const char** names;
  size_t many;
  size_t ranges;
  uint32_t nodes;
  size_t data;
};
API int cuptiRangeProfilerGetCounterDataSize(struct range_size* p) {
  CHECK(data);
  room = (int)p->ranges;
  p->data = 16 + p->ranges;
  return 0;
}
struct pm_size {
  size_t size;
  void* priv;
  void* object;
  const char** names;
  size_t many;
  uint32_t samples;
  size_t data;
};
API int cuptiPmSamplingGetCounterDataSize(struct pm_size* p) {
  CHECK(data);
  room = (int)p->samples;
  p->data = 16 + p->samples;
  return 0;
}
struct data {
  size_t size;
  void* priv;
  void* object;
  size_t data_size;
  uint8_t* data;
};
static int initialise(struct data* p) {
  if (p->data_size != (size_t)(16 + room)) return 1;
  memset(p->data, 9, p->data_size);
  return 0;
}
API int cuptiRangeProfilerCounterDataImageInitialize(struct data* p) {
  CHECK(data);
  return initialise(p);
}
API int cuptiPmSamplingCounterDataImageInitialize(struct data* p) {
  CHECK(data);
  return initialise(p);
}

struct range_config {
  size_t size;
  void* priv;
  void* object;
  size_t config_size;
  const uint8_t* config;
  size_t image_size;
  uint8_t* image;
  int range;
  int replay;
  size_t most;
  uint16_t levels;
  uint16_t least;
  size_t pass;
  uint16_t target;
};
API int cuptiRangeProfilerSetConfig(struct range_config* p) {
  CHECK(target);
  if (memcmp(p->config, "CONFIG!", 8) || p->range != 1 || p->replay != 2 || !p->levels) return 1;
  return p->most == (size_t)room ? 0 : 1;
}
struct pm_config {
  size_t size;
  void* priv;
  void* object;
  size_t config_size;
  const uint8_t* config;
  size_t buffer;
  uint64_t interval;
  int trigger;
};
API int cuptiPmSamplingSetConfig(struct pm_config* p) {
  CHECK(trigger);
  return memcmp(p->config, "CONFIG!", 8) || !p->interval || p->trigger != 1 ? 1 : 0;
}
API int cuptiRangeProfilerStart(struct object* p) {
  CHECK(object);
  launched = 0;
  started = 1;
  return 0;
}
API int cuptiPmSamplingStart(struct object* p) {
  CHECK(object);
  launched = taken = 0;
  started = 1;
  return 0;
}
struct stop {
  size_t size;
  void* priv;
  void* object;
  size_t pass;
  size_t target;
  uint8_t all;
};
API int cuptiRangeProfilerStop(struct stop* p) {
  CHECK(all);
  started = 0;
  p->all = 1;
  return 0;
}
API int cuptiPmSamplingStop(struct object* p) {
  CHECK(object);
  started = 0;
  return 0;
}

struct range_decode {
  size_t size;
  void* priv;
  void* object;
  size_t dropped;
};
API int cuptiRangeProfilerDecodeData(struct range_decode* p) {
  CHECK(dropped);
  decoded = launched < room ? launched : room;
  ranges += decoded;
  p->dropped = launched - decoded;
  return 0;
}
struct pm_decode {
  size_t size;
  void* priv;
  void* object;
  uint8_t* image;
  size_t image_size;
  int why;
  uint8_t over;
};
API int cuptiPmSamplingDecodeData(struct pm_decode* p) {
  CHECK(over);
  int left = launched - taken;
  decoded = left < room ? left : room;
  taken += decoded;
  p->why = taken < launched ? 1 : 2;
  p->over = (uint8_t)overflow;
  return 0;
}
struct range_count {
  size_t size;
  void* priv;
  const uint8_t* image;
  size_t image_size;
  size_t total;
};
API int cuptiRangeProfilerGetCounterDataInfo(struct range_count* p) {
  CHECK(total);
  p->total = decoded;
  return 0;
}
struct pm_count {
  size_t size;
  void* priv;
  const uint8_t* image;
  size_t image_size;
  size_t total;
  size_t some;
  size_t done;
};
API int cuptiPmSamplingGetCounterDataInfo(struct pm_count* p) {
  CHECK(done);
  p->total = room;
  p->some = p->done = decoded;
  return 0;
}
struct range_name {
  size_t size;
  void* priv;
  const uint8_t* image;
  size_t image_size;
  size_t place;
  const char* delimiter;
  const char* name;
};
API int cuptiRangeProfilerCounterDataGetRangeInfo(struct range_name* p) {
  CHECK(name);
  snprintf(name_of_range, sizeof name_of_range, "%zu", ranges - decoded + p->place);
  p->name = name_of_range;
  return 0;
}
struct pm_sample {
  size_t size;
  void* priv;
  void* object;
  const uint8_t* image;
  size_t image_size;
  size_t place;
  uint64_t begin;
  uint64_t end;
};
API int cuptiPmSamplingCounterDataGetSampleInfo(struct pm_sample* p) {
  CHECK(end);
#ifdef BESIDE_ACTIVITY
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at); /* CUPTI's own clock; samples have been taken just now */
  p->begin = (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec - 1000;
#else
  p->begin = 1000 * (taken - decoded + p->place);
#endif
  p->end = p->begin + 1000;
  return 0;
}
