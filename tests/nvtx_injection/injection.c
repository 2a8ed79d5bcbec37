/* An NVTX tool for tests: writes every domain, category, string, push, pop and mark to a file.
 *
 * One line per event, fields separated by blanks: name, thread, domain, then the fields of the event.
 * Texts are hexadecimal, so that nothing in them needs escaping. Built with -DOPSCOPE_REFUSE it also
 * exports an extension entry point that fails, as in Nsight Systems 2022 and 2023: the nvtx package
 * then assumes that the domain is disabled although events would arrive. Built with -DOPSCOPE_ASK_ALL it
 * attaches as they do: it requests modules 1, 5, 2 and 4, fills all their slots, and attaches to nothing
 * if a module is refused or too small.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nvtx3/nvToolsExt.h"

struct domain {
  int number;
};
struct text {
  char* hex;
};

static FILE* out;
static int domains;
static unsigned long long ranges;

static char* to_hex(const char* text) {
  size_t length = text ? strlen(text) : 0;
  char* hex = malloc(2 * length + 2);
  for (size_t i = 0; i < length; i++) sprintf(hex + 2 * i, "%02x", (unsigned char)text[i]);
  if (length == 0) strcpy(hex, "-");
  return hex;
}

static long tid(void) { return syscall(SYS_gettid); }
static int number(nvtxDomainHandle_t domain) { return domain ? ((struct domain*)domain)->number : 0; }

static void event(const char* name, nvtxDomainHandle_t domain, const nvtxEventAttributes_t* a) {
  char payload[32] = "-";
  if (a->payloadType == NVTX_PAYLOAD_TYPE_INT64)
    sprintf(payload, "%lld", (long long)a->payload.llValue);
  else if (a->payloadType != NVTX_PAYLOAD_UNKNOWN)
    sprintf(payload, "?%d", (int)a->payloadType);
  const char* kind = "none";
  char* hex = NULL;
  const char* shown = "-";
  if (a->messageType == NVTX_MESSAGE_TYPE_REGISTERED && a->message.registered) {
    kind = "registered";
    shown = ((struct text*)a->message.registered)->hex;
  } else if (a->messageType == NVTX_MESSAGE_TYPE_ASCII) {
    kind = "plain";
    shown = hex = to_hex(a->message.ascii);
  }
  fprintf(out, "%s %ld %d %u %s %s %s\n", name, tid(), number(domain), a->category, payload, kind, shown);
  free(hex);
}

static nvtxDomainHandle_t NVTX_API domain_create(const char* name) {
  struct domain* domain = malloc(sizeof *domain);
  char* hex = to_hex(name);
  domain->number = ++domains;
  fprintf(out, "domain %ld %d %s\n", tid(), domain->number, hex);
  free(hex);
  return (nvtxDomainHandle_t)domain;
}

static nvtxStringHandle_t NVTX_API register_string(nvtxDomainHandle_t domain, const char* string) {
  struct text* text = malloc(sizeof *text);
  text->hex = to_hex(string);
  fprintf(out, "string %ld %d %s\n", tid(), number(domain), text->hex);
  return (nvtxStringHandle_t)text;
}

static void NVTX_API name_category(nvtxDomainHandle_t domain, uint32_t category, const char* name) {
  char* hex = to_hex(name);
  fprintf(out, "category %ld %d %u %s\n", tid(), number(domain), category, hex);
  free(hex);
}

static void NVTX_API mark(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  event("mark", domain, attributes);
}

static int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  event("push", domain, attributes);
  return 0;
}

static int NVTX_API pop(nvtxDomainHandle_t domain) {
  fprintf(out, "pop %ld %d\n", tid(), number(domain));
  return 0;
}

/* The n-th start of a process has the number n, which its end names. */
static nvtxRangeId_t NVTX_API start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  event("start", domain, attributes);
  return ++ranges;
}

static void NVTX_API end(nvtxDomainHandle_t domain, nvtxRangeId_t range) {
  fprintf(out, "end %ld %d %llu\n", tid(), number(domain), (unsigned long long)range);
}

#ifdef OPSCOPE_ASK_ALL
static void NVTX_API nothing(void) {}

static int all_modules(const NvtxExportTableCallbacks* callbacks) {
  static const struct {
    NvtxCallbackModule module;
    unsigned slots;
  } asked[] = {
      {NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_SIZE},
      {NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_SIZE},
      {NVTX_CB_MODULE_CUDA, NVTX_CBID_CUDA_SIZE},
      {NVTX_CB_MODULE_CUDART, NVTX_CBID_CUDART_SIZE},
  };
  for (int i = 0; i < 4; i++) {
    NvtxFunctionTable table = NULL;
    unsigned int size = 0;
    if (!callbacks->GetModuleFunctionTable(asked[i].module, &table, &size) || !table || size < asked[i].slots)
      return 0;
    if (asked[i].module != NVTX_CB_MODULE_CORE2) /* its functions are filled below */
      for (unsigned id = 1; id < asked[i].slots; id++) *table[id] = (NvtxFunctionPointer)nothing;
  }
  return 1;
}
#endif

/* Each library with NVTX headers attaches by itself: this runs once per library. */
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_export_table) {
  const NvtxExportTableCallbacks* callbacks =
      (const NvtxExportTableCallbacks*)get_export_table(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table = NULL;
  unsigned int size = 0;
#ifdef OPSCOPE_ASK_ALL
  if (!callbacks || !all_modules(callbacks)) return 0;
#endif
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) ||
      size <= NVTX_CBID_CORE2_DomainCreateA)
    return 0;
  if (!out) {
    const char* path = getenv("OPSCOPE_TEST_NVTX_LOG");
    char own[4096]; /* "%p" in the path is the process: each has a file of its own then */
    const char* place = path ? strstr(path, "%p") : NULL;
    if (place) {
      snprintf(own, sizeof own, "%.*s%d%s", (int)(place - path), path, (int)getpid(), place + 2);
      path = own;
    }
    out = path ? fopen(path, "a") : NULL;
    if (!out) return 0;
    setvbuf(out, NULL, _IOLBF, 0);
  }
  *table[NVTX_CBID_CORE2_DomainMarkEx] = (NvtxFunctionPointer)mark;
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
  *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
  *table[NVTX_CBID_CORE2_DomainRangeStartEx] = (NvtxFunctionPointer)start;
  *table[NVTX_CBID_CORE2_DomainRangeEnd] = (NvtxFunctionPointer)end;
  *table[NVTX_CBID_CORE2_DomainNameCategoryA] = (NvtxFunctionPointer)name_category;
  *table[NVTX_CBID_CORE2_DomainRegisterStringA] = (NvtxFunctionPointer)register_string;
  *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)domain_create;
  return 1;
}

#ifdef OPSCOPE_REFUSE
__attribute__((visibility("default"))) int InitializeInjectionNvtxExtension(void* module) {
  (void)module;
  return 0;
}
#endif
