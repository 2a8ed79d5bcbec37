/* A client of NVTX for one domain, without NVTX's headers. Part of annotations.c.
 *
 * It does what NVTX's headers do: it loads the tool that NVTX_INJECTION64_PATH names, and the tool fills in
 * the functions of module CORE2. Their numbers and the event structure are NVTX's fixed ABI. */

typedef void (*Function)(void);
typedef struct {
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  uint64_t payload;
  int32_t message_type;
  const void* message;
} Event;
enum { PUSH = 4, POP = 5, REGISTER = 10, CREATE = 12, INITIALIZE = 15, CORE2_SIZE = 16 };
enum { FIRST = 1, LAST = 6, MOST = 16 }; /* first and last function module, and slots of the largest */
enum { CALLBACKS = 1, VERSION_INFO = 3, CORE2 = 5, NVTX_VERSION_3 = 3, ASCII = 1, REGISTERED = 3 };

static Function filled[LAST + 1][MOST];
static Function* slots[LAST + 1][MOST + 1];  /* a null slot ends each module's table */
static Function* const functions = filled[CORE2];
static void* nvtx_domain;
static uint32_t registered;
static _Atomic int to_nvtx;

/* Give the tool the slots of a module to fill. We call functions of CORE2 only, but Nsight Systems asks for
 * modules 1, 5, 2 and 4, and attaches to none of them if one is refused. Numbers of slots: nvtxTypes.h,
 * NVTX_CBID_*_SIZE. */
static int module_table(int module, Function*** out, unsigned* count) {
  static const unsigned sizes[LAST + 1] = {0, 16, 9, 15, 7, CORE2_SIZE, 7};
  if (module < FIRST || module > LAST) return 0;
  for (unsigned i = 1; i < sizes[module]; i++) slots[module][i] = &filled[module][i];
  if (out) *out = slots[module];
  if (count) *count = sizes[module];
  return 1;
}
static void set_version(uint32_t version) { (void)version; }

static const void* export_table(uint32_t id) {
  static const struct {
    size_t size;
    int (*table)(int, Function***, unsigned*);
  } callbacks = {sizeof callbacks, module_table};
  static const struct {
    size_t size;
    uint32_t version, reserved;
    void (*set)(uint32_t);
  } info = {sizeof info, NVTX_VERSION_3, 0, set_version};
  return id == CALLBACKS ? (const void*)&callbacks : id == VERSION_INFO ? (const void*)&info : NULL;
}

/* Attach to the NVTX tool, on the first call, and create the domain. Returns whether a tool is attached. */
EXPORT int opscope_nvtx(const char* domain) {
  static int tried;
  if (tried++) return nvtx_domain != NULL;
  const char* path = getenv("NVTX_INJECTION64_PATH");
  void* tool = path ? dlopen(path, RTLD_LAZY) : NULL;
  int (*attach)(const void* (*)(uint32_t)) = NULL;
  if (tool) *(void**)&attach = dlsym(tool, "InitializeInjectionNvtx2");
  if (!attach || !attach(export_table)) return 0;
  if (functions[INITIALIZE]) ((void (*)(const void*))functions[INITIALIZE])(NULL);
  if (!functions[CREATE] || !functions[PUSH] || !functions[POP]) return 0;
  nvtx_domain = ((void* (*)(const char*))functions[CREATE])(domain);
  return nvtx_domain != NULL;
}

static void* nvtx_string(const char* text) {
  if (!to_nvtx || !functions[REGISTER] || registered >= MAX_REGISTERED) return NULL;
  registered++;
  return ((void* (*)(void*, const char*))functions[REGISTER])(nvtx_domain, text);
}

static void nvtx_push(const Text* text) {
  Event event = {NVTX_VERSION_3, sizeof event, 0, 0, 0, 0, 0, 0, 0, NULL};
  event.message_type = text->nvtx ? REGISTERED : ASCII;
  event.message = text->nvtx ? text->nvtx : text->text;
  ((int (*)(void*, const Event*))functions[PUSH])(nvtx_domain, &event);
}
