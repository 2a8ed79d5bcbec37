// The observer's data: texts, known calls, threads and their buffers; and the constants that it shares with
// the Python side.

#pragma once

#include "kept.h"

#include <ATen/Parallel.h>
#include <ATen/SequenceNumber.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/version.h>

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#ifdef OPSCOPE_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

// Python's C API, declared by hand. These functions are the same in every CPython from 3.9 on, so neither
// Python's headers nor a build per Python version is needed. PyFrame_GetLasti came with 3.11.
extern "C" {
PyObject* PyGILState_GetThisThreadState(void);
int PyGILState_Ensure(void);
void PyGILState_Release(int);
PyObject* PyThreadState_GetFrame(PyObject*);
PyObject* PyThreadState_Get(void);
PyObject* PyFrame_GetBack(PyObject*);
PyObject* PyFrame_GetCode(PyObject*);
int PyFrame_GetLineNumber(PyObject*);
int PyFrame_GetLasti(PyObject*) __attribute__((weak));
PyObject* PyObject_CallFunctionObjArgs(PyObject*, ...);
char* PyBytes_AsString(PyObject*);
void PyErr_Clear(void);
PyObject* PyErr_Occurred(void);  // returns a borrowed reference
int PyErr_ExceptionMatches(PyObject*);
void PyErr_SetString(PyObject*, const char*);
void Py_IncRef(PyObject*);
void Py_DecRef(PyObject*);
int Py_AddPendingCall(int (*)(void*), void*);
int Py_IsInitialized(void);
PyObject* PyObject_GetAttr(PyObject*, PyObject*);
PyObject* PyLong_FromLongLong(long long);
PyObject* PyUnicode_InternFromString(const char*);
long PyLong_AsLong(PyObject*);
long long PyLong_AsLongLong(PyObject*);
unsigned long long PyLong_AsUnsignedLongLong(PyObject*);
ssize_t PyList_Size(PyObject*);
PyObject* PyList_GetItem(PyObject*, ssize_t);  // returns a borrowed reference
int PyList_Append(PyObject*, PyObject*);
int PyList_SetSlice(PyObject*, ssize_t, ssize_t, PyObject*);
typedef PyObject* (*PyCFunction)(PyObject*, PyObject*);
struct PyMethodDef {
  const char* name;
  PyCFunction function;
  int flags;
  const char* doc;
};
PyObject* PyCFunction_NewEx(PyMethodDef*, PyObject* self, PyObject* module);
extern PyObject _Py_NoneStruct, _Py_TrueStruct, PyLong_Type;
extern PyObject *PyExc_Exception, *PyExc_TypeError;
}

// COLD: rare code, placed away from the code that every call runs. APART: common code that is not inlined.
#define COLD __attribute__((cold, noinline))
#define APART __attribute__((noinline))

namespace {

using c10::IValue;

// ------------------------------------------------------------------ constants shared with Python
// Each has its counterpart in Python; tests/test_native_constants.py compares them all.
// observer.py
constexpr int kAbi = 8;
constexpr size_t kCounts = 11;  // the number of values that opscope_counts writes
constexpr char kLibraryMark = '\1';  // before the name of a library's file
// One op in this many is timed, to measure our own cost.
constexpr uint32_t kTimedEvery = 64;
// One call of Python's hooks in this many is timed. A prime, so that it is not always the same module.
constexpr int64_t kHookTimedEvery = 17;
// core/recording_format.py
constexpr size_t kRecordBytes = 16;
constexpr int64_t kPayload = -2;
constexpr int64_t kMarkBase = int64_t(1) << 48;
constexpr int64_t kPopBase = -16;
constexpr int64_t kCompleteBase = -(int64_t(1) << 32);
constexpr int64_t kChunk = -(int64_t(1) << 60);
// core/capture/emit.py
constexpr int kSeqBits = 48;
constexpr int64_t kMaxSeq = int64_t(1) << kSeqBits;
constexpr uint64_t kMaxForwardThread = 1 << 15;
constexpr size_t kRecordLimit = 1 << 20;
constexpr size_t kTextLimit = 4096;
constexpr char kCut[] = "<cut>";
// core/capture/nvtx_sink.py
constexpr size_t kMaxRegistered = 65536;
// The first ids of texts and numbers of threads, in ranges that Python does not use.
constexpr int64_t kFirstText = int64_t(1) << 40;
constexpr int64_t kFirstThread = int64_t(1) << 20;

// dispatch.py and source.py
constexpr size_t kMaxEntries = 65536;
constexpr char kSubclass[] = "subclass";  // call.py: the parameter of an op that a subclass of a tensor takes
constexpr int kMaxVariants = 32;
constexpr int kFrames = 3;  // of the user's code; a library's frame may come before them
constexpr int kFrameDepth = 100;
constexpr size_t kMaxPlaces = 65536;
// dispatch.py: prefixes of the names of ops that are not recorded, that communicate, and whose results have
// sizes that depend on data.
constexpr const char* kUnrecorded[] = {"prim::", "profiler::", "aten::is_same_size"};
constexpr const char* kCommunicating[] = {"c10d::", "c10d_functional::", "_c10d_functional::", "_dtensor::"};
constexpr const char* kDynamic[] = {
    "aten::_pack_padded_sequence", "aten::_unique", "aten::unique", "aten::nonzero"};
// state.py: the number of autograd nodes remembered per thread; a power of two.
constexpr size_t kNodes = 1 << 17;
// schema.CATEGORIES, with their numbers in NVTX.
enum Category { kNone, kForward, kBackward, kOptimizer, kInput, kCommunication };
constexpr const char* kCategoryNames[] = {
    nullptr, "forward", "backward", "optimizer", "input", "communication"};
constexpr const char* kOtherCategoryNames[] = {"layer", "step", "phase", "spec", "result", "graph"};
constexpr uint32_t kResultCategory = 10;

// -------------------------------------------------------------------------- constants of our own
// Records (16 bytes) in one block; waiting records of a thread that make it request a flush from Python;
// waiting records beyond which further ones are dropped.
constexpr int kBlock = 4096;
constexpr int64_t kAskFlush = 32768;
constexpr int64_t kMaxWaiting = int64_t(1) << 24;
// ns. A timed call that takes longer was interrupted by another process: it counts once, not as a sample.
constexpr int64_t kLongestSample = 100'000;
constexpr int64_t kLongestHook = 100'000;
// CPython's METH_FASTCALL and METH_O: calling conventions of a builtin.
constexpr int kFastcall = 0x80, kOneArgument = 0x08;

int64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);  // the clock of time.perf_counter_ns on Linux
  return int64_t(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

// ------------------------------------------------------------------------------- structures

// Between two ops the model's data fills the CPU's caches, so our cost of an op is the number of cache lines
// that it touches. The fields that every call needs therefore come first in a structure, within one line of
// 64 bytes.
constexpr size_t kLine = 64;

struct alignas(kLine) Text {
  int64_t id = 0;
  // The recording whose strings have this text.
  std::atomic<int64_t> epoch{0};
  Category category = kNone;
  std::string_view text;  // ends with a zero byte
#ifdef OPSCOPE_NVTX
  nvtxStringHandle_t handle = nullptr;
  int64_t process = 0;  // the value of g_nvtx_process: a forked child cannot use its parent's handles
  std::string_view shown;  // the text for NVTX, cut if it is too long
#endif
  std::vector<std::string> own;  // the characters of ``text`` and ``shown``, for a text outside ``Kept``
};

// The source lines of a call.

struct Place {
  std::vector<std::string> pieces;  // " @file:1", " < file:2"
};

struct ArgInfo {
  enum Kind { kOther, kTensor, kDtype, kLayout, kMemoryFormat, kDevice } kind = kOther;
  std::string key;  // its name as in the text
  bool is_device = false;
};

// The properties of its op that every call reads.
struct OpTraits {
  uint64_t plain = 0;  // a bit for each of the first 64 arguments: whether it is kOther
  uint32_t count = 0;  // of arguments
  bool recorded = true;
  bool native = false;  // aten: implemented in C++
  bool composite = false;  // decomposes above autograd, unless the op has a kernel for the device:
  bool own_cpu = false, own_cuda = false;
  bool autocast_cpu = false, autocast_cuda = false;
  bool communication = false;
};

struct OpInfo : OpTraits {
  int returns = 0;
  bool dynamic = false;
  std::vector<ArgInfo> args;
  std::string base;  // aten::addmm
  std::string overload;  // as in the schema
  std::string name;  // as in the text: aten::add.Tensor

  void set_args(std::vector<ArgInfo> given) {
    args = std::move(given);
    count = uint32_t(args.size());
    for (size_t at = 0; at < args.size() && at < 64; ++at)
      plain |= uint64_t(args[at].kind == ArgInfo::kOther) << at;
  }
  bool same(const OpInfo& other) const {  // given that both have the same name
    auto flags = [](const OpInfo& op) {
      return std::array{op.recorded, op.native, op.composite, op.own_cpu, op.own_cuda, op.autocast_cpu,
          op.autocast_cuda, op.dynamic, op.communication};
    };
    auto alike = [](const ArgInfo& one, const ArgInfo& two) {
      return one.kind == two.kind && one.key == two.key && one.is_device == two.is_device;
    };
    return returns == other.returns && flags(*this) == flags(other) &&
        std::equal(args.begin(), args.end(), other.args.begin(), other.args.end(), alike);
  }
};

// A known call: its text, with outputs once they are known.
using Pieces = std::vector<std::string>;
using KeptPieces = std::pmr::vector<std::pmr::string>;

struct alignas(kLine) Entry {
  std::atomic<Text*> pushed{nullptr};
  std::atomic<bool> known{false};
  bool dynamic = false;
  bool has_device = false;
  Category category = kNone;
  // Under the lock. The pieces before and after the outputs, until the outputs are known.
  KeptPieces head, tail;
  size_t placed = 0;  // index in the tail where the device (or, without one, the frames) begins
  std::pmr::unordered_map<uint64_t, Text*> by_result;
  std::vector<std::unique_ptr<Text>> own;  // the texts of an entry beyond kMaxEntries
  bool kept = true;  // allocated in ``Kept``; false beyond kMaxEntries

  explicit Entry(std::pmr::memory_resource* in) : head(in), tail(in), by_result(in) {}
};

struct Block {
  std::atomic<int> used{0};
  std::atomic<Block*> next{nullptr};
  int64_t records[kBlock][2];
  static_assert(sizeof records[0] == kRecordBytes);
};

Spares<Block>& blocks() {
  static auto* one = new Spares<Block>;
  return *one;
}

struct Context;

template <class Value>
struct Slot {
  uint64_t key = 0;
  Value* value = nullptr;
};
// The slot of a call. It has the number to push, so that neither the entry nor the text is fetched.
struct alignas(32) CallSlot : Slot<Entry> {
  int64_t text = 0;
  int64_t epoch = 0;  // the recording whose strings have the text, outputs included
};

struct alignas(kLine) OpSlot : Slot<OpInfo> {
  OpTraits traits;  // a copy, so that the op itself is not fetched
};

template <class Value, class In = Slot<Value>>
struct Table {  // hash (not 0) → value; open addressing; used by one thread
  std::pmr::vector<In> slots{1024, pages()};
  size_t mask = 1023;
  size_t count = 0;
  // Mixes in the hash's upper half, which is the better half of a product.
  static size_t start(uint64_t key) { return key >> 32 ^ key; }
  // Returns null where there is none. The slot is valid until the next insert.
  In* slot(uint64_t key) {
    auto* all = slots.data();
    for (size_t at = start(key) & mask;; at = (at + 1) & mask) {
      if (all[at].key == key) return &all[at];
      if (all[at].value == nullptr) return nullptr;
    }
  }
  Value* find(uint64_t key) {
    In* found = slot(key);
    return found ? found->value : nullptr;
  }
  In& insert(uint64_t key, Value* value) {
    if (count * 2 >= slots.size()) {
      std::pmr::vector<In> old(slots.size() * 2, pages());
      old.swap(slots);
      mask = slots.size() - 1;
      count = 0;
      for (auto& one : old)
        if (one.value) insert(one.key, one.value) = one;
    }
    size_t at = start(key) & mask;
    while (slots[at].value != nullptr) at = (at + 1) & mask;
    slots[at].key = key;
    slots[at].value = value;
    ++count;
    return slots[at];
  }
  COLD void clear() { *this = {}; }
};

// Whose file a code object is from: the user's, a library's (which may have the model), or neither.
enum class Whose : uint64_t { others = 0, users = 1, library = 2 };
constexpr uint64_t kWhose = 3;
// A cache of recently seen codes, close together in memory: the codes of a program's ops hardly change.
struct RecentCodes {
  uint64_t known[64] = {};  // a code's address (a multiple of 16), with ``Whose`` in its lower bits
  uint64_t& of(uint64_t code) { return known[(code * 0x9E3779B97F4A7C15ull) >> 58]; }
};
// The number of frame addresses kept from the last walk: the next walk's are the same, except the innermost.
constexpr int kRecentFrames = 16;

struct NodeSlot {  // which op made autograd node ``seq`` of this thread, and at which place
  std::atomic<int64_t> seq{-1};
  // The sequence number of that op, or of the op that it differentiates, with the number's forward thread, as
  // in a payload. The thread is needed because an accelerator's backward pass runs in a thread of its own.
  std::atomic<int64_t> op{-1};
  std::atomic<const Place*> place{nullptr};
};

struct alignas(kLine) Thread {
  // The first line: fields for every call.
  bool busy = false;
  bool has_place = false;
  bool sought = false;  // whether ``ready`` has been searched for
  int inside = 0;  // depth within canonical ops
  int silent = 0;  // depth within ops that are only traced
  // Written by Python's hooks on this thread.
  int32_t flags[3] = {0, 0, 0};  // optimizing, waiting for data, a forced category
  std::atomic<int64_t> calls{0}, slow_ns{0};
  int64_t names = -1;  // the value of g_names when ``ops`` was filled
  const Place* place = nullptr;  // of the enclosing op, where that is PyTorch's own
  at::StepCallbacks* ready = nullptr;  // PyTorch's prepared callbacks for the next call; see reach.h
  // The second and third line: fields for every recorded call.
  alignas(kLine) Table<OpInfo, OpSlot> ops;
  Table<Entry, CallSlot> calls_seen;
  const at::RecordFunctionTLS* tls = nullptr;  // PyTorch's state of this thread
  alignas(kLine) Block* writing = nullptr;  // the writer's end of the buffer
  int64_t used = 0;  // records written into that block; ``Block::used`` is for the reader
  std::atomic<int64_t> waiting{0};
  std::atomic<int64_t> ops_seen{0};
  void* free_context = nullptr;
  int64_t filled = -1;  // autograd nodes below this number have their op
  int64_t last_seq = -1;  // the number that the last forward range carried
  uint64_t record_function_id = 0;
  // Fields for forward ops.
  alignas(kLine) const char* frames[kRecentFrames] = {};
  alignas(kLine) RecentCodes recent;
  alignas(kLine) Table<const Whose> codes;
  Table<const Place> places;
  std::unique_ptr<NodeSlot[]> nodes;
  // Fields for the builtins that Python's hooks call, under the GIL.
  alignas(kLine) PyObject* open = nullptr;  // Python's list of open ranges
  int64_t open_epoch = 0;  // the recording that the list belongs to
  int64_t begun_epoch = 0;  // the recording in which steps have begun
  std::atomic<int64_t> hooks{0}, hooks_timed{0}, hook_ns{0}, hook_long_ns{0};
  bool hooked = false;  // within a builtin
  // Fields that are used rarely.
  alignas(kLine) Block* reading = nullptr;  // the reader's end
  int read = 0;
  std::atomic<bool> dead{false};
  int64_t announced = 0;
  int64_t index = 0;
  int64_t os_tid = 0;
  uint64_t pthread = 0;
  std::vector<void*> free_contexts;
  // Our own cost: ns of the timed calls (``slow_ns``: of all work on a new call, place or output).
  std::atomic<int64_t> own_ns{0}, timed{0}, dropped{0};
  int slow = 0;  // depth of nested ``Slow``

  Thread() { writing = reading = blocks().get(); }
  ~Thread() {
    while (reading) {
      Block* next = reading->next.load();
      blocks().put(reading);
      reading = next;
    }
    for (void* one : free_contexts) ::operator delete(one);
    ::operator delete(free_context);
  }
  COLD Block* next_block() {
    Block* fresh = blocks().get();
    writing->next.store(fresh, std::memory_order_release);
    used = 0;
    return writing = fresh;
  }
  void put(int64_t code, int64_t value) {
    Block* block = C10_LIKELY(used < kBlock) ? writing : next_block();
    // Prefetch the line after the next one: it is in no cache, as it was last used long ago.
    __builtin_prefetch(&block->records[used + 8 < kBlock ? used + 8 : used], 1);
    block->records[used][0] = code;
    block->records[used][1] = value;
    block->used.store(int(++used), std::memory_order_release);
  }
};

void count(std::atomic<int64_t>& counter, int64_t by = 1) {  // only the counter's own thread writes it
  counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

// Times all work on a new call, place or output, including the wait for the GIL. Other work is timed by a
// sample.
struct Slow {
  Thread& t;
  int64_t begin;
  explicit Slow(Thread& of) : t(of), begin(t.slow++ ? 0 : now()) {}
  ~Slow() {
    if (!--t.slow) count(t.slow_ns, now() - begin);
  }
};

// ------------------------------------------------------------------------------ global state

struct Counts {
  int64_t ops = 0, own_ns = 0, timed = 0, slow_ns = 0, dropped = 0, calls = 0;
  int64_t hooks = 0, hooks_timed = 0, hook_ns = 0, hook_long_ns = 0;
  void add(const Thread& t) {
    ops += t.ops_seen.load();
    calls += t.calls.load();
    dropped += t.dropped.load();
    own_ns += t.own_ns.load();
    timed += t.timed.load();
    slow_ns += t.slow_ns.load();
    hooks += t.hooks.load();
    hooks_timed += t.hooks_timed.load();
    hook_ns += t.hook_ns.load();
    hook_long_ns += t.hook_long_ns.load();
  }
};

struct Global {
  std::mutex lock;  // no thread waits for the GIL while it has this lock
  std::vector<Thread*> threads;
  Counts gone;  // of threads that have ended
  int64_t next_thread = kFirstThread;
  int64_t next_text = kFirstText;
  Kept kept;
  std::pmr::unordered_map<std::string_view, Text*> texts{&kept.pool};
  std::pmr::unordered_map<uint64_t, Entry*> entries{&kept.pool};
  struct Variant {
    int seen = 0;
    Entry* all = nullptr;
  };
  std::pmr::unordered_map<uint64_t, Variant> variants{&kept.pool};
  size_t varying = 0;  // entries whose texts have ``varies`` for their numbers
  std::unordered_map<std::string, std::unique_ptr<OpInfo>> ops;
  std::vector<std::unique_ptr<OpInfo>> former_ops;  // ops that the program has redefined since
  std::string strings;  // JSON lines that the recorder has not taken yet
  std::string domain = "opscope.torch";
  std::array<std::atomic<Thread*>, kMaxForwardThread> by_forward_thread{};
  std::vector<char> taken_events;
  std::string taken_strings;
  std::vector<int64_t> taken_threads, taken_texts;
  std::vector<PyObject*> orphans;  // references of threads that have ended, to be released under the GIL
  std::atomic<bool> orphaned{false};
#ifdef OPSCOPE_NVTX
  nvtxDomainHandle_t nvtx = nullptr;
  size_t registered = 0;
#endif
};

Global& global() {
  static Global* one = new Global;  // never destroyed: threads may outlive static destruction
  return *one;
}

// The switches that every call reads, on one line that rarely changes.
struct alignas(kLine) Switches {
  std::atomic<int64_t> epoch{0};  // the current recording's number; 0: none
  std::atomic<int64_t> names{0};  // how often an operator was removed
  std::atomic<int64_t> pop_code{kPopBase};
  std::atomic<int64_t> observing{0};  // how often the callback was added or removed
  std::atomic<int> creating{0};
  std::atomic<bool> nvtx{false};
  std::atomic<bool> shapes{true}, source{true}, all_levels{false};
} g_switches;
auto& g_epoch = g_switches.epoch;
auto& g_names = g_switches.names;
auto& g_pop_code = g_switches.pop_code;
auto& g_observing = g_switches.observing;
auto& g_creating = g_switches.creating;
auto& g_nvtx = g_switches.nvtx;
auto& g_shapes = g_switches.shapes;
auto& g_source = g_switches.source;
auto& g_all_levels = g_switches.all_levels;
std::atomic<int64_t> g_nvtx_process{0};  // how often this process was forked
std::atomic<int64_t> g_next_epoch{0};
std::atomic<int64_t> g_failures{0};
std::atomic<bool> g_flush_asked{false};
// The time from which on a pop by Python flushes, and the interval between flushes, in ns.
std::atomic<int64_t> g_due{0}, g_flush_ns{0};
PyObject* g_flush = nullptr;  // a Python function, called under the GIL
at::CallbackHandle g_handle = at::INVALID_CALLBACK_HANDLE;

thread_local Thread* t_thread = nullptr;
struct Leaving {
  bool armed = false;
  ~Leaving() {
    if (t_thread) t_thread->dead.store(true);
    t_thread = nullptr;
  }
};
thread_local Leaving t_leaving;

COLD Thread* enter_thread() {
  auto* thread = new Thread;
  thread->os_tid = syscall(SYS_gettid);
  thread->pthread = uint64_t(pthread_self());
  thread->record_function_id = at::RecordFunction::currentThreadId();
  // A thread of an op's parallel region: the ops that it calls have no Python frames and no direction.
  thread->silent = at::in_parallel_region();
  Global& g = global();
  {
    std::lock_guard<std::mutex> guard(g.lock);
    thread->index = g.next_thread++;
    g.threads.push_back(thread);
  }
  if (thread->record_function_id < kMaxForwardThread)
    g.by_forward_thread[thread->record_function_id].store(thread);
  t_thread = thread;
  t_leaving.armed = true;  // its destructor runs when the thread ends
  return thread;
}

inline Thread& this_thread() {
  Thread* thread = t_thread;
  return C10_LIKELY(thread != nullptr) ? *thread : *enter_thread();
}

}  // namespace
