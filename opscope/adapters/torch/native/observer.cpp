// The native observer: a RecordFunction callback that writes each op as a range of opscope's own form.
//
// Plain C ABI, called by ctypes (observer.py). For each op that PyTorch's dispatcher calls, on every
// thread, forward and backward: a signature (op, shapes, dtypes, strides, scalars, direction, source)
// is hashed; its text is made once; a push and a pop go to this thread's buffer and to NVTX. The GIL
// is taken only to look at the Python frames of a forward op. Python takes the buffers when it flushes.
//
// The text must equal, byte for byte, what call.py and rangetext.py make of the same call.

#include <ATen/Parallel.h>
#include <ATen/SequenceNumber.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/function.h>

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

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

// Python's C API by hand: these functions are the same in every CPython from 3.9 on, so neither its
// headers are needed nor one build per Python version. PyFrame_GetLasti came with 3.11.
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
void Py_IncRef(PyObject*);
void Py_DecRef(PyObject*);
int Py_AddPendingCall(int (*)(void*), void*);
int Py_IsInitialized(void);
}

namespace {

using c10::IValue;

// ------------------------------------------------------------------ constants shared with Python
// core/record.py
constexpr int64_t kPayload = -2;
constexpr int64_t kPopBase = -16;
constexpr int64_t kCompleteBase = -(int64_t(1) << 32);
constexpr int64_t kChunk = -(int64_t(1) << 60);
// core/emit.py
constexpr int kSeqBits = 48;
constexpr int64_t kMaxSeq = int64_t(1) << kSeqBits;
constexpr uint64_t kMaxForwardThread = 1 << 15;
constexpr size_t kRecordLimit = 1 << 20;
constexpr size_t kTextLimit = 4096;
constexpr char kCut[] = "<cut>";
// core/nvtx_sink.py
constexpr size_t kMaxRegistered = 65536;
// Ids of texts and numbers of threads, apart from those that Python gives.
constexpr int64_t kFirstText = int64_t(1) << 40;
constexpr int64_t kFirstThread = int64_t(1) << 20;

// dispatch.py and source.py
constexpr size_t kMaxEntries = 65536;
constexpr int kMaxVariants = 32;
constexpr int kFrames = 3;
constexpr int kFrameDepth = 100;
constexpr size_t kMaxPlaces = 65536;

// Autograd nodes remembered of each thread; a power of two.
constexpr size_t kNodes = 1 << 17;
// Records (16 bytes) of one block, and those that may wait before Python is asked to flush.
constexpr int kBlock = 4096;
constexpr int64_t kAskFlush = 32768;
constexpr int64_t kMaxWaiting = int64_t(1) << 24;
// One op in so many is timed, to tell our own cost.
constexpr uint32_t kTimedEvery = 64;

enum Category { kNone, kForward, kBackward, kOptimizer, kInput, kCommunication };
constexpr const char* kCategoryNames[] = {
    nullptr, "forward", "backward", "optimizer", "input", "communication"};
// schema.CATEGORY_ID; "result" is the last but one.
constexpr uint32_t kResultCategory = 10;

int64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);  // what time.perf_counter_ns reads on Linux
  return int64_t(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

// ------------------------------------------------------------------------------- what is kept

struct Text {
  int64_t id = 0;
  Category category = kNone;
  std::string text;
  // The recording whose strings have it.
  std::atomic<int64_t> epoch{0};
#ifdef OPSCOPE_NVTX
  nvtxStringHandle_t handle = nullptr;
  std::string plain;
#endif
};

struct Place {
  std::vector<std::string> pieces;  // " @file:1", " < file:2"
};

struct ArgInfo {
  enum Kind { kOther, kTensor, kDtype, kLayout, kMemoryFormat, kDevice } kind = kOther;
  std::string key;  // as the text writes it
  bool is_device = false;
};

struct OpInfo {
  std::string base;      // aten::addmm
  std::string overload;  // as given
  std::string name;      // as the text writes it: aten::add.Tensor
  std::vector<ArgInfo> args;
  int returns = 0;
  bool recorded = true;
  bool native = false;      // aten: implemented in C++
  bool composite = false;   // decomposes above autograd, unless its device has
  bool own_cpu = false, own_cuda = false;  // ... a kernel of its own
  bool autocast_cpu = false, autocast_cuda = false;
  bool dynamic = false;
  bool communication = false;
};

// A call seen before: its text, with outputs once they are known.
struct Entry {
  Category category = kNone;
  bool dynamic = false;
  bool has_device = false;
  std::vector<std::string> head, tail;  // pieces before and after the outputs
  size_t framed = 0;                    // where in the tail the frames begin
  std::atomic<Text*> pushed{nullptr};
  std::atomic<bool> known{false};
  std::unordered_map<uint64_t, Text*> by_result;  // under the lock
  std::vector<std::unique_ptr<Text>> own;         // of an entry past the bound
  bool kept = true;
};

struct Block {
  std::atomic<int> used{0};
  std::atomic<Block*> next{nullptr};
  int64_t records[kBlock][2];
};

struct Context;

struct Table {  // hash → entry, open addressing, of one thread
  std::vector<std::pair<uint64_t, Entry*>> slots{std::vector<std::pair<uint64_t, Entry*>>(1024)};
  size_t count = 0;
  Entry* find(uint64_t key) const {
    size_t mask = slots.size() - 1;
    for (size_t at = key & mask;; at = (at + 1) & mask) {
      if (slots[at].first == key) return slots[at].second;
      if (slots[at].second == nullptr) return nullptr;
    }
  }
  void insert(uint64_t key, Entry* entry) {
    if (count * 2 >= slots.size()) {
      std::vector<std::pair<uint64_t, Entry*>> old(slots.size() * 2);
      old.swap(slots);
      count = 0;
      for (auto& [k, e] : old)
        if (e) insert(k, e);
    }
    size_t mask = slots.size() - 1;
    size_t at = key & mask;
    while (slots[at].second != nullptr) at = (at + 1) & mask;
    slots[at] = {key, entry};
    ++count;
  }
};

struct NodeSlot {  // which op made autograd node ``seq`` of this thread, and where
  std::atomic<int64_t> seq{-1};
  std::atomic<int64_t> op_seq{-1};
  std::atomic<const Place*> place{nullptr};
};

struct Thread {
  int64_t index = 0;
  int64_t os_tid = 0;
  uint64_t pthread = 0;
  uint64_t record_function_id = 0;
  // Written by Python's hooks on this thread.
  int32_t flags[4] = {0, 0, 0, 0};  // optimizing, waiting for data, reserved
  bool busy = false;
  int inside = 0;  // within a canonical op
  int silent = 0;  // within an op that is only traced
  const Place* place = nullptr;  // of the enclosing op, where that is PyTorch's own
  bool has_place = false;
  int64_t filled = -1;    // nodes below this number have their op
  int64_t last_seq = -1;  // the number that the last forward range carried
  uint32_t count = 0;
  int64_t generation = 0;  // of the entries in ``table``
  Table table;
  std::unordered_map<const char*, OpInfo*> ops;
  const char* last_name = nullptr;
  OpInfo* last_op = nullptr;
  std::unique_ptr<NodeSlot[]> nodes;
  std::vector<void*> free_contexts;
  // The writer's end of the buffer, and the reader's.
  Block* writing = nullptr;
  Block* reading = nullptr;
  int read = 0;
  std::atomic<int64_t> waiting{0};
  std::atomic<bool> dead{false};
  int64_t announced = 0;
  // Own cost, sampled.
  std::atomic<int64_t> own_ns{0}, timed{0}, ops_seen{0}, dropped{0};

  Thread() { writing = reading = new Block; }
  ~Thread() {
    while (reading) {
      Block* next = reading->next.load();
      delete reading;
      reading = next;
    }
    for (void* one : free_contexts) ::operator delete(one);
  }
  void put(int64_t code, int64_t value) {
    Block* block = writing;
    int used = block->used.load(std::memory_order_relaxed);
    if (used == kBlock) {
      Block* fresh = new Block;
      block->next.store(fresh, std::memory_order_release);
      writing = block = fresh;
      used = 0;
    }
    block->records[used][0] = code;
    block->records[used][1] = value;
    block->used.store(used + 1, std::memory_order_release);
  }
};

// ------------------------------------------------------------------------------ global state

struct Counts {
  int64_t ops = 0, own_ns = 0, dropped = 0;
  void add(const Thread& t) {
    int64_t seen = t.ops_seen.load(), timed = t.timed.load();
    ops += seen;
    dropped += t.dropped.load();
    if (timed) own_ns += int64_t(double(t.own_ns.load()) / double(timed) * double(seen));
  }
};

struct Global {
  std::mutex lock;  // never held while the GIL is waited for
  std::vector<Thread*> threads;
  Counts gone;  // of threads that have ended
  int64_t next_thread = kFirstThread;
  int64_t next_text = kFirstText;
  std::unordered_map<std::string, std::unique_ptr<Text>> texts;
  std::unordered_map<uint64_t, std::unique_ptr<Entry>> entries;
  struct Variant {
    int seen = 0;
    Entry* all = nullptr;
  };
  std::unordered_map<uint64_t, Variant> variants;
  std::vector<std::unique_ptr<Entry>> varying;
  std::vector<std::unique_ptr<Entry>> former;  // ops that run may still end with them
  std::unordered_map<std::string, std::unique_ptr<OpInfo>> ops;
  std::string strings;  // JSON lines not yet taken
  std::string domain = "opscope.torch";
  std::array<std::atomic<Thread*>, kMaxForwardThread> by_forward_thread{};
  std::vector<char> taken_events;
  std::string taken_strings;
  std::vector<int64_t> taken_threads;
#ifdef OPSCOPE_NVTX
  nvtxDomainHandle_t nvtx = nullptr;
  size_t registered = 0;
#endif
};

Global& global() {
  static Global* one = new Global;  // never destroyed: threads may outlive static destruction
  return *one;
}

std::atomic<int64_t> g_generation{0};  // of the entries: other options make other texts
std::atomic<int64_t> g_epoch{0};  // the recording; 0: none
std::atomic<int64_t> g_next_epoch{0};
std::atomic<bool> g_nvtx{false};
std::atomic<bool> g_shapes{true}, g_source{true}, g_all_levels{false};
std::atomic<int> g_creating{0};
std::atomic<int64_t> g_pop_code{kPopBase};
std::atomic<int64_t> g_failures{0};
std::atomic<bool> g_flush_asked{false};
void (*g_flush)(void) = nullptr;
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

Thread* enter_thread() {
  auto* thread = new Thread;
  thread->os_tid = syscall(SYS_gettid);
  thread->pthread = uint64_t(pthread_self());
  thread->record_function_id = at::RecordFunction::currentThreadId();
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
  return thread ? *thread : *enter_thread();
}

// ------------------------------------------------------------------------------------ hashing

struct Hasher {
  uint64_t state;
  void add(uint64_t value) {
    __uint128_t product = __uint128_t(state ^ value) * 0x9E3779B97F4A7C15ull;
    state = uint64_t(product) ^ uint64_t(product >> 64) ^ (value << 1);
  }
  void add(const std::string& text) {
    add(std::hash<std::string>{}(text));
  }
};

bool plain(const c10::TensorImpl* impl) {
  return impl->layout() == c10::kStrided && !impl->has_symbolic_sizes_strides() &&
      !impl->is_nested();
}

void sign(Hasher& hash, const at::Tensor& tensor, bool numbers) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!tensor.defined()) {
    hash.add(1);
    return;
  }
  uint64_t dtype = uint64_t(c10::typeMetaToScalarType(impl->dtype()));
  if (impl->is_wrapped_number()) {
    hash.add(0x200 | dtype);
    if (numbers || dtype == uint64_t(at::kBool)) {
      const void* data = tensor.const_data_ptr();
      uint64_t bits[2] = {0, 0};
      std::memcpy(bits, data, std::min<size_t>(impl->itemsize(), 16));
      hash.add(bits[0]);
      hash.add(bits[1]);
    }
    return;
  }
  auto device = impl->device();
  uint64_t kind = 0x10000 | dtype | uint64_t(uint8_t(device.type())) << 24 |
      uint64_t(uint8_t(device.index())) << 32;
  if (!plain(impl)) {
    hash.add(kind | uint64_t(1) << 41);
    if (impl->layout() != c10::kStrided && !impl->is_nested() &&
        !impl->has_symbolic_sizes_strides() && !impl->is_python_dispatch())
      for (int64_t size : impl->sizes()) hash.add(uint64_t(size));
    return;
  }
  auto sizes = impl->sizes_default();
  auto strides = impl->strides_default();
  hash.add(kind | uint64_t(sizes.size()) << 48);
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    hash.add(uint64_t(sizes[dim]));
    hash.add(uint64_t(strides[dim]));
  }
}

void sign(Hasher& hash, const IValue& value, bool numbers, bool is_number) {
  if (value.isTensor()) {
    sign(hash, value.toTensor(), numbers);
  } else if (value.isNone()) {
    hash.add(2);
  } else if (value.isInt()) {
    hash.add(3);
    if (numbers || !is_number) hash.add(uint64_t(value.toInt()));
  } else if (value.isBool()) {
    hash.add(4 + (value.toBool() ? 1 : 0));
  } else if (value.isDouble()) {
    hash.add(6);
    if (numbers) {
      double number = value.toDouble();
      uint64_t bits;
      std::memcpy(&bits, &number, 8);
      hash.add(bits);
    }
  } else if (value.isTensorList()) {
    auto list = value.toTensorVector();
    hash.add(0x700 + list.size());
    for (const at::Tensor& one : list) sign(hash, one, numbers);
  } else if (value.isList()) {
    auto list = value.toListRef();
    hash.add(0x80000000ull + list.size());
    for (const IValue& one : list) sign(hash, one, numbers, is_number);
  } else if (value.isString()) {
    hash.add(9);
    hash.add(std::hash<std::string_view>{}(value.toStringView()));
  } else if (value.isDevice()) {
    auto device = value.toDevice();
    hash.add(0xA0000 | uint64_t(uint8_t(device.type())) << 8 | uint8_t(device.index()));
  } else if (value.isComplexDouble()) {
    hash.add(11);
    if (numbers) {
      auto number = value.toComplexDouble();
      uint64_t bits[2];
      std::memcpy(bits, &number, 16);
      hash.add(bits[0]);
      hash.add(bits[1]);
    }
  } else {
    hash.add(12);  // a generator, a process group: its identity does not matter
  }
}

// ------------------------------------------------------------------------------------ writing

bool plain_name(const std::string& text) {
  if (text.empty()) return false;
  for (unsigned char c : text)
    if (!(std::isalnum(c) || c == '_' || c >= 0x80 || std::strchr(":./$+-", c))) return false;
  return true;
}

std::string json(std::string_view text) {
  std::string out = "\"";
  for (unsigned char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        if (c < 0x20) {
          char escaped[8];
          std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
          out += escaped;
        } else {
          out += char(c);
        }
    }
  }
  return out + "\"";
}

// A float as Python's repr writes it: the shortest digits that read back the same.
std::string number(double value, bool integral_point = true) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  char buffer[40];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string text(buffer, end);
  size_t e = text.find('e');
  int exponent = std::atoi(text.c_str() + e + 1);
  bool negative = text[0] == '-';
  std::string digits;
  for (size_t at = negative; at < e; ++at)
    if (text[at] != '.') digits += text[at];
  std::string out = negative ? "-" : "";
  if (exponent >= 16 || exponent < -4) {
    out += digits.substr(0, 1);
    if (digits.size() > 1) out += "." + digits.substr(1);
    char tail[8];
    std::snprintf(tail, sizeof tail, "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
    return out + tail;
  }
  if (exponent < 0) return out + "0." + std::string(-exponent - 1, '0') + digits;
  if (int(digits.size()) <= exponent + 1)
    return out + digits + std::string(exponent + 1 - digits.size(), '0') +
        (integral_point ? ".0" : "");
  return out + digits.substr(0, exponent + 1) + "." + digits.substr(exponent + 1);
}

std::string complex_number(c10::complex<double> value) {
  auto part = [](double x) {
    if (std::isnan(x)) return std::string("nan");
    if (std::isinf(x)) return std::string(x > 0 ? "inf" : "-inf");
    return number(x, false);
  };
  if (value.real() == 0 && !std::signbit(value.real())) return "\"" + part(value.imag()) + "j\"";
  std::string imag = part(value.imag());
  if (imag[0] != '-') imag = "+" + imag;
  return "\"(" + part(value.real()) + imag + "j)\"";
}

// dtypes.py: c10's own name in lower case → the range text's.
const std::string& dtype_name(at::ScalarType type) {
  static auto* names = [] {
    static const std::pair<const char*, const char*> known[] = {
        {"double", "f64"}, {"float", "f32"}, {"half", "f16"}, {"bfloat16", "bf16"},
        {"float8_e4m3fn", "f8e4m3fn"}, {"float8_e5m2", "f8e5m2"},
        {"float8_e4m3fnuz", "f8e4m3fnuz"}, {"float8_e5m2fnuz", "f8e5m2fnuz"},
        {"float8_e8m0fnu", "f8e8m0fnu"}, {"long", "i64"}, {"int", "i32"}, {"short", "i16"},
        {"char", "i8"}, {"uint64", "u64"}, {"uint32", "u32"}, {"uint16", "u16"}, {"byte", "u8"},
        {"bool", "bool"}, {"complexhalf", "c32"}, {"complexfloat", "c64"},
        {"complexdouble", "c128"}};
    auto* made = new std::array<std::string, size_t(at::ScalarType::NumOptions) + 1>;
    for (size_t one = 0; one < made->size(); ++one) {
      std::string name = c10::toString(at::ScalarType(one));
      for (char& c : name) c = char(std::tolower(c));
      for (auto& [from, to] : known)
        if (name == from) {
          name = to;
          break;
        }
      (*made)[one] = name;
    }
    return made;
  }();
  return (*names)[std::min(size_t(type), names->size() - 1)];
}

std::string dims(c10::IntArrayRef values) {
  std::string out;
  for (size_t at = 0; at < values.size(); ++at) {
    if (at) out += ',';
    out += std::to_string(values[at]);
  }
  return out;
}

bool row_major(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  int64_t expected = 1;
  for (size_t dim = sizes.size(); dim-- > 0;) {
    if (sizes[dim] == 0) return true;
    if (sizes[dim] != 1) {
      if (strides[dim] != expected) return false;
      expected *= sizes[dim];
    }
  }
  return true;
}

std::string tensor_text(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  std::string out = dtype_name(c10::typeMetaToScalarType(impl->dtype()));
  if (plain(impl)) {
    auto sizes = impl->sizes_default();
    auto strides = impl->strides_default();
    out += "[" + dims(sizes) + "]";
    if (!row_major(sizes, strides)) out += "{s:" + dims(strides) + "}";
    return out;
  }
  if (!impl->is_nested() && !impl->has_symbolic_sizes_strides() && !impl->is_python_dispatch())
    return out + "[" + dims(impl->sizes()) + "]";  // sparse
  out += "[";
  for (int64_t dim = 0, count = impl->is_nested() ? impl->dim() : impl->sym_sizes_default().size();
       dim < count; ++dim)
    out += dim ? ",?" : "?";
  return out + "]";
}

bool is_wrapped(const at::Tensor& tensor) {
  return tensor.defined() && tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

// An input: None for a number that stands for a tensor.
void write_arg(std::vector<std::string>& pieces, const IValue& value) {
  auto list = [&](size_t count, auto&& item) {
    std::vector<std::vector<std::string>> items(count);
    bool same = count > 1;
    for (size_t at = 0; at < count; ++at) {
      item(items[at], at);
      same = same && items[at] == items[0];
    }
    pieces.push_back("[");
    for (size_t at = 0; at < (same ? 1 : count); ++at) {
      if (at) pieces.push_back(", ");
      pieces.insert(pieces.end(), items[at].begin(), items[at].end());
    }
    pieces.push_back(same ? "]*" + std::to_string(count) : "]");
  };
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    pieces.push_back(tensor.defined() && !is_wrapped(tensor) ? tensor_text(tensor) : "_");
  } else if (value.isTensorList()) {
    auto tensors = value.toTensorVector();
    list(tensors.size(), [&](auto& into, size_t at) { write_arg(into, IValue(tensors[at])); });
  } else if (value.isList()) {
    auto values = value.toListRef();
    list(values.size(), [&](auto& into, size_t at) { write_arg(into, values[at]); });
  } else {
    pieces.push_back("_");
  }
}

bool has_number(const IValue& value) {
  if (value.isList()) {
    for (const IValue& one : value.toListRef())
      if (has_number(one)) return true;
    return false;
  }
  return value.isInt() || value.isDouble() || value.isComplexDouble();
}

std::string param_text(const IValue& value, int depth = 0) {
  if (value.isBool()) return value.toBool() ? "true" : "false";
  if (value.isInt()) return std::to_string(value.toInt());
  if (value.isDouble()) return number(value.toDouble());
  if (value.isComplexDouble()) return complex_number(value.toComplexDouble());
  if (value.isString()) return json(value.toStringView());
  if (value.isDevice()) return json(value.toDevice().str());
  if (value.isNone()) return "null";
  if (value.isList() && depth < 4) {
    auto values = value.toListRef();
    std::string out = "[";
    for (size_t at = 0; at < values.size() && at < 256; ++at) {
      if (at) out += ", ";
      out += param_text(values[at], depth + 1);
    }
    if (values.size() > 256) out += ", \"\xe2\x80\xa6\"";
    return out + "]";
  }
  if (value.isGenerator()) return "\"generator\"";
  if (value.isSymInt() || value.isSymFloat() || value.isSymBool()) return "\"?\"";
  return "\"object\"";
}

std::string wrapped_text(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble: return number(*tensor.const_data_ptr<double>());
    case at::kLong: return std::to_string(*tensor.const_data_ptr<int64_t>());
    case at::kBool: return *tensor.const_data_ptr<bool>() ? "true" : "false";
    case at::kComplexDouble: return complex_number(*tensor.const_data_ptr<c10::complex<double>>());
    case at::kFloat: return number(*tensor.const_data_ptr<float>());
    default: return "\"?\"";
  }
}

const char* layout_name(int64_t layout) {
  switch (c10::Layout(layout)) {
    case c10::Layout::Strided: return "\"strided\"";
    case c10::Layout::Sparse: return "\"sparse_coo\"";
    case c10::Layout::SparseCsr: return "\"sparse_csr\"";
    case c10::Layout::SparseCsc: return "\"sparse_csc\"";
    case c10::Layout::SparseBsr: return "\"sparse_bsr\"";
    case c10::Layout::SparseBsc: return "\"sparse_bsc\"";
    case c10::Layout::Mkldnn: return "\"_mkldnn\"";
    case c10::Layout::Jagged: return "\"jagged\"";
    default: return "\"?\"";
  }
}

const char* memory_format_name(int64_t format) {
  switch (c10::MemoryFormat(format)) {
    case c10::MemoryFormat::Contiguous: return "\"contiguous_format\"";
    case c10::MemoryFormat::Preserve: return "\"preserve_format\"";
    case c10::MemoryFormat::ChannelsLast: return "\"channels_last\"";
    case c10::MemoryFormat::ChannelsLast3d: return "\"channels_last_3d\"";
    default: return "\"?\"";
  }
}

// The device of the first tensor that is on none but the CPU, else "cpu"; empty without tensors.
void find_device(std::string& found, const IValue& value) {
  auto one = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || is_wrapped(tensor)) return;
    if (found.empty() || found == "cpu") found = tensor.device().str();
  };
  if (!found.empty() && found != "cpu") return;
  if (value.isTensor()) {
    one(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) one(tensor);
  } else if (value.isList()) {
    for (const IValue& item : value.toListRef()) find_device(found, item);
  }
}

void device_piece(std::vector<std::string>& pieces, const std::string& device) {
  if (!device.empty()) pieces.push_back(" on " + (plain_name(device) ? device : json(device)));
}

std::string joined(const std::vector<std::string>& pieces, size_t limit) {
  size_t size = 0;
  for (const auto& piece : pieces) size += piece.size();
  std::string out;
  if (size <= limit) {
    out.reserve(size);
    for (const auto& piece : pieces) out += piece;
    return out;
  }
  size_t room = limit - std::strlen(kCut);
  for (const auto& piece : pieces) {
    if (piece.size() > room) break;
    room -= piece.size();
    out += piece;
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out + kCut;
}

// ------------------------------------------------------------------------ texts, under the lock

std::unique_ptr<Text> make_text(Global& g, Category category, const std::vector<std::string>& pieces) {
  auto text = std::make_unique<Text>();
  text->id = g.next_text++;
  text->category = category;
  text->text = joined(pieces, kRecordLimit);
#ifdef OPSCOPE_NVTX
  if (g.nvtx) {
    std::string shown = joined(pieces, kTextLimit);
    for (size_t at; (at = shown.find('\0')) != std::string::npos;) shown.replace(at, 1, "\\0");
    if (g.registered < kMaxRegistered) {
      ++g.registered;
      text->handle = nvtxDomainRegisterStringA(g.nvtx, shown.c_str());
    } else {
      text->plain = shown;
    }
  }
#endif
  return text;
}

Text* intern(Global& g, Entry& entry, const std::vector<std::string>& pieces) {
  if (!entry.kept) {
    entry.own.push_back(make_text(g, entry.category, pieces));
    return entry.own.back().get();
  }
  std::string key(1, char('0' + entry.category));
  for (const auto& piece : pieces) key += piece;
  auto& slot = g.texts[key];
  if (!slot) slot = make_text(g, entry.category, pieces);
  return slot.get();
}

void announce(Global& g, Text& text, int64_t epoch) {
  if (text.epoch.load() == epoch) return;
  g.strings += "[" + std::to_string(text.id) + ", \"" + g.domain + "\", " +
      (text.category ? json(kCategoryNames[text.category]) : std::string("null")) + ", " +
      json(text.text) + "]\n";
  text.epoch.store(epoch);
}

// -------------------------------------------------------------------------------------- ops

bool starts_with(const std::string& text, const char* prefix) {
  return text.compare(0, std::strlen(prefix), prefix) == 0;
}

OpInfo* make_op(const c10::FunctionSchema& schema) {
  auto op = std::make_unique<OpInfo>();
  op->base = schema.name();
  op->overload = schema.overload_name();
  std::string full = op->overload.empty() ? op->base : op->base + "." + op->overload;
  op->name = plain_name(full) ? full : json(full);
  for (const char* prefix : {"prim::", "profiler::", "aten::is_same_size"})
    if (starts_with(op->base, prefix)) op->recorded = false;
  for (const char* prefix : {"c10d::", "c10d_functional::", "_c10d_functional::", "_dtensor::"})
    if (starts_with(op->base, prefix)) op->communication = true;
  for (const char* prefix :
       {"aten::_pack_padded_sequence", "aten::_unique", "aten::unique", "aten::nonzero"})
    if (starts_with(op->base, prefix)) op->dynamic = true;
  op->native = starts_with(op->base, "aten::");
  for (const auto& arg : schema.arguments()) {
    ArgInfo info;
    info.key = arg.name();
    bool word = !info.key.empty();
    for (unsigned char c : info.key) word = word && (std::isalnum(c) || c == '_' || c >= 0x80);
    if (!word) info.key = json(info.key);
    info.is_device = arg.name() == "device";
    if (arg.type()->str().find("Tensor") != std::string::npos) {
      info.kind = ArgInfo::kTensor;
    } else {
      auto type = arg.real_type();
      if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
      switch (type->kind()) {
        case c10::TypeKind::ScalarTypeType: info.kind = ArgInfo::kDtype; break;
        case c10::TypeKind::LayoutType: info.kind = ArgInfo::kLayout; break;
        case c10::TypeKind::MemoryFormatType: info.kind = ArgInfo::kMemoryFormat; break;
        case c10::TypeKind::DeviceObjType: info.kind = ArgInfo::kDevice; break;
        default: break;
      }
    }
    op->args.push_back(std::move(info));
  }
  op->returns = int(schema.returns().size());
  auto handle = c10::Dispatcher::singleton().findSchema(schema.operator_name());
  if (handle) {
    using K = c10::DispatchKey;
    bool explicitly = handle->hasKernelForDispatchKey(K::CompositeExplicitAutograd);
    op->composite = handle->hasKernelForDispatchKey(K::CompositeImplicitAutograd) &&
        !explicitly && !handle->hasKernelForDispatchKey(K::AutogradCPU);
    // A device's own kernel comes before the decomposition.
    op->own_cpu = handle->hasKernelForDispatchKey(K::CPU);
    op->own_cuda = handle->hasKernelForDispatchKey(K::CUDA);
    op->autocast_cpu = handle->hasKernelForDispatchKey(K::AutocastCPU);
    op->autocast_cuda = handle->hasKernelForDispatchKey(K::AutocastCUDA);
    for (auto tag : handle->getTags())
      if (tag == at::Tag::dynamic_output_shape || tag == at::Tag::data_dependent_output)
        op->dynamic = true;
  }
  Global& g = global();
  std::lock_guard<std::mutex> guard(g.lock);
  auto& slot = g.ops[full];
  if (!slot) slot = std::move(op);
  return slot.get();
}

template <class Function>
bool same_overload(const Function& fn, const OpInfo& op) {
  if constexpr (requires { fn.overload_name(); })
    return op.overload == fn.overload_name();
  else
    return true;  // torch before 2.7 does not tell
}

// The op of this call; null where it is no operator with a schema.
OpInfo* find_op(Thread& t, const at::RecordFunction& fn) {
  const char* name = fn.name();
  if (name == t.last_name) return t.last_op;
  // A schema's strings keep their address; a name without a schema is in the call's own memory.
  auto found = t.ops.find(name);
  if (found != t.ops.end() && found->second->base == name && same_overload(fn, *found->second)) {
    t.last_name = name;
    return t.last_op = found->second;
  }
  auto schema = fn.operator_schema();
  if (!schema) return nullptr;
  OpInfo* op = make_op(*schema);
  if (t.ops.size() > kMaxEntries) t.ops.clear();
  t.ops[name] = op;
  t.last_name = name;
  return t.last_op = op;
}

// ---------------------------------------------------------------------------------- frames

struct CodeInfo {
  bool user = false;
  std::string file;
};
struct PlaceKey {
  std::array<uint64_t, 2 * kFrames> parts{};
  bool operator==(const PlaceKey& other) const { return parts == other.parts; }
};
struct PlaceHash {
  size_t operator()(const PlaceKey& key) const {
    Hasher hash{1};
    for (uint64_t part : key.parts) hash.add(part);
    return hash.state;
  }
};
// Under the GIL only. Code objects in it are kept alive, so that an address stays one code's.
struct Sources {
  PyObject* classify = nullptr;
  std::unordered_map<PyObject*, CodeInfo> codes;
  std::unordered_map<PlaceKey, const Place*, PlaceHash> places;
};
Sources& sources() {
  static Sources* one = new Sources;
  return *one;
}
const Place kNowhere{};

const CodeInfo& code_info(Sources& all, PyObject* code) {
  auto found = all.codes.find(code);
  if (found != all.codes.end()) return found->second;
  CodeInfo info;
  if (all.classify) {
    PyObject* file = PyObject_CallFunctionObjArgs(all.classify, code, nullptr);
    const char* text = file ? PyBytes_AsString(file) : nullptr;
    if (!text) {
      PyErr_Clear();
    } else if (*text) {
      info.user = true;
      info.file = plain_name(text) ? text : json(text);
    }
    if (file) Py_DecRef(file);
  }
  if (all.codes.size() >= kMaxPlaces) {
    // Nothing is said of code made later: entries must not be dropped while places name them.
    static const CodeInfo foreign;
    return foreign;
  }
  Py_IncRef(code);
  return all.codes.emplace(code, std::move(info)).first->second;
}

const Place* find_place() {
  if (!PyGILState_GetThisThreadState()) return &kNowhere;  // no thread of Python's
  int gil = PyGILState_Ensure();
  Sources& all = sources();
  PlaceKey key;
  PyObject* user[kFrames];
  PyObject* codes[kFrames];
  int count = 0;
  PyObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  for (int depth = 0; frame && depth < kFrameDepth && count < kFrames; ++depth) {
    PyObject* code = PyFrame_GetCode(frame);
    PyObject* back = PyFrame_GetBack(frame);
    if (code_info(all, code).user) {
      int at = PyFrame_GetLasti ? PyFrame_GetLasti(frame) : PyFrame_GetLineNumber(frame);
      key.parts[2 * count] = uint64_t(code);
      key.parts[2 * count + 1] = uint64_t(at) + 1;
      codes[count] = code;
      user[count++] = frame;
    } else {
      Py_DecRef(frame);
    }
    Py_DecRef(code);  // the frame, or our table, keeps it
    frame = back;
  }
  if (frame) Py_DecRef(frame);
  const Place* place = &kNowhere;
  if (count) {
    auto found = all.places.find(key);
    if (found != all.places.end()) {
      place = found->second;
    } else if (all.places.size() < kMaxPlaces) {
      auto* made = new Place;
      for (int at = 0; at < count; ++at)
        made->pieces.push_back((at ? " < " : " @") + code_info(all, codes[at]).file + ":" +
                               std::to_string(PyFrame_GetLineNumber(user[at])));
      all.places.emplace(key, made);
      place = made;
    }
  }
  for (int at = 0; at < count; ++at) Py_DecRef(user[at]);
  PyGILState_Release(gil);
  return place;
}

// ------------------------------------------------------------------------------- one op's range

struct Context : at::ObserverContext {
  Entry* entry = nullptr;
  std::unique_ptr<Entry> own;  // an entry past the bound
  OpInfo* op = nullptr;
  Thread* thread = nullptr;
  const Place* outer_place = nullptr;
  const Place* place = nullptr;
  int64_t epoch = 0;
  int64_t peeked = -1;
  int64_t seq = -1;
  bool canonical = false, forward = false, outer_has_place = false, nvtx = false, timed = false;
  bool wants = false;   // the outputs
  bool silent = false;  // not recorded, nor what is within
  std::vector<const c10::TensorImpl*> inputs;  // to recognise outputs that are inputs, not followed

  static void* operator new(size_t size) {
    Thread& t = this_thread();
    if (size != sizeof(Context) || t.free_contexts.empty()) return ::operator new(size);
    void* one = t.free_contexts.back();
    t.free_contexts.pop_back();
    return one;
  }
  static void operator delete(void* one) {
    Thread* t = t_thread;
    if (t && t->free_contexts.size() < 256)
      t->free_contexts.push_back(one);
    else
      ::operator delete(one);
  }
};

void input_leaves(std::vector<const c10::TensorImpl*>& into, const IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    into.push_back(tensor.defined() && !is_wrapped(tensor) ? tensor.unsafeGetTensorImpl() : nullptr);
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) into.push_back(tensor.unsafeGetTensorImpl());
  } else if (value.isList()) {
    for (const IValue& one : value.toListRef()) input_leaves(into, one);
  } else {
    into.push_back(nullptr);
  }
}

std::unique_ptr<Entry> make_entry(
    Global& g, const OpInfo& op, Category category, const Place* place,
    c10::ArrayRef<IValue> args, bool dynamic, bool varies, bool kept) {
  auto entry = std::make_unique<Entry>();
  entry->category = category;
  entry->kept = kept;
  bool shapes = g_shapes.load();
  entry->dynamic = dynamic && shapes;
  entry->head = {op.name, "("};
  std::string device;
  if (shapes) {
    size_t count = std::min(args.size(), op.args.size());
    bool first = true;
    for (size_t at = 0; at < count; ++at) {
      find_device(device, args[at]);
      if (op.args[at].kind != ArgInfo::kTensor) continue;
      if (!first) entry->head.push_back(", ");
      first = false;
      write_arg(entry->head, args[at]);
    }
    bool any = false;
    for (size_t at = 0; at < count; ++at) {
      const IValue& value = args[at];
      const ArgInfo& arg = op.args[at];
      std::string text;
      if (value.isNone()) continue;
      if (arg.kind == ArgInfo::kTensor) {
        if (!value.isTensor() || !is_wrapped(value.toTensor())) continue;
        bool boolean = value.toTensor().scalar_type() == at::kBool;
        text = varies && !boolean ? "\"varies\"" : wrapped_text(value.toTensor());
      } else if (arg.kind == ArgInfo::kDtype && value.isInt()) {
        text = json(dtype_name(at::ScalarType(value.toInt())));
      } else if (arg.kind == ArgInfo::kLayout && value.isInt()) {
        text = layout_name(value.toInt());
      } else if (arg.kind == ArgInfo::kMemoryFormat && value.isInt()) {
        text = memory_format_name(value.toInt());
      } else {
        if (arg.is_device && value.isDevice() && device.empty()) device = value.toDevice().str();
        text = varies && has_number(value) ? "\"varies\"" : param_text(value);
      }
      if (!any) entry->tail.push_back(" {");
      entry->tail.push_back((any ? ", " : "") + arg.key + "=" + text);
      any = true;
    }
    if (any) entry->tail.push_back("}");
  }
  entry->head.push_back(")");
  entry->has_device = !device.empty();
  device_piece(entry->tail, device);
  entry->framed = entry->tail.size();
  entry->tail.insert(entry->tail.end(), place->pieces.begin(), place->pieces.end());
  auto pieces = entry->head;
  pieces.insert(pieces.end(), entry->tail.begin(), entry->tail.end());
  entry->pushed.store(intern(g, *entry, pieces));
  entry->known.store(!shapes);
  return entry;
}

uint64_t signature(
    const OpInfo& op, Category category, const Place* place, c10::ArrayRef<IValue> args,
    bool numbers) {
  Hasher hash{0x6f70u};
  hash.add(uint64_t(&op));
  hash.add(uint64_t(place) ^ uint64_t(category) << 56);
  if (g_shapes.load(std::memory_order_relaxed)) {
    size_t count = std::min(args.size(), op.args.size());
    for (size_t at = 0; at < count; ++at)
      sign(hash, args[at], numbers, op.args[at].kind == ArgInfo::kOther);
  }
  return hash.state | 1;
}

Entry* find_entry(
    Thread& t, Context& context, const OpInfo& op, Category category, const Place* place,
    c10::ArrayRef<IValue> args) {
  if (t.generation != g_generation.load(std::memory_order_acquire)) {
    t.generation = g_generation.load(std::memory_order_acquire);
    t.table = Table();
  }
  uint64_t key = signature(op, category, place, args, true);
  if (Entry* found = t.table.find(key)) return found;
  uint64_t bare = signature(op, category, place, args, false) ^ 0x5bd1e99500000000ull;
  if (Entry* found = t.table.find(bare)) return found;
  Global& g = global();
  std::lock_guard<std::mutex> guard(g.lock);
  auto& variant = g.variants[bare];
  if (variant.all) {  // its numbers are new all the time
    t.table.insert(bare, variant.all);
    return variant.all;
  }
  auto there = g.entries.find(key);
  if (there != g.entries.end()) {
    t.table.insert(key, there->second.get());
    return there->second.get();
  }
  if (g.entries.size() + g.varying.size() >= kMaxEntries) {
    context.own = make_entry(g, op, category, place, args, true, false, false);
    if (variant.seen == 0) g.variants.erase(bare);
    return context.own.get();
  }
  if (variant.seen >= kMaxVariants) {
    g.varying.push_back(make_entry(g, op, category, place, args, true, true, true));
    variant.all = g.varying.back().get();
    return variant.all;
  }
  ++variant.seen;
  auto made = make_entry(g, op, category, place, args, op.dynamic, false, true);
  Entry* entry = made.get();
  g.entries.emplace(key, std::move(made));
  t.table.insert(key, entry);
  return entry;
}

#ifdef OPSCOPE_NVTX
nvtxEventAttributes_t attributes(const Text& text, int64_t payload) {
  nvtxEventAttributes_t event{};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.category = uint32_t(text.category);
  if (text.handle) {
    event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    event.message.registered = text.handle;
  } else {
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = text.plain.empty() ? text.text.c_str() : text.plain.c_str();
  }
  if (payload >= 0) {
    event.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    event.payload.llValue = payload;
  }
  return event;
}
#endif

int flush_in_python(void*) {
  g_flush_asked.store(false);
  if (g_flush) g_flush();
  return 0;
}

void push(Thread& t, Context& c, Text* text, int64_t payload) {
  int64_t epoch = c.epoch = g_epoch.load(std::memory_order_relaxed);
  if (epoch && text->epoch.load(std::memory_order_relaxed) != epoch) {
    Global& g = global();
    std::lock_guard<std::mutex> guard(g.lock);
    announce(g, *text, epoch);
  }
#ifdef OPSCOPE_NVTX
  if (g_nvtx.load(std::memory_order_relaxed)) {
    auto event = attributes(*text, payload);
    nvtxDomainRangePushEx(global().nvtx, &event);
    c.nvtx = true;
  }
#endif
  if (epoch) {
    int64_t waiting = t.waiting.load(std::memory_order_relaxed);
    if (waiting > kAskFlush) {
      if (waiting > kMaxWaiting) {  // nobody takes it: better to lose the rest than the program
        t.dropped.fetch_add(1, std::memory_order_relaxed);
        c.epoch = 0;
        return;
      }
      if (!g_flush_asked.exchange(true) && Py_IsInitialized())
        Py_AddPendingCall(flush_in_python, nullptr);
    }
    t.waiting.store(waiting + 3, std::memory_order_relaxed);  // read and reset by the taker
    if (payload >= 0) t.put(kPayload, payload);
    t.put(text->id, now());  // the last thing before the op
  }
}

void fill_nodes(Thread& t, int64_t from, int64_t to, const Place* place, int64_t op_seq) {
  if (!t.nodes) t.nodes = std::make_unique<NodeSlot[]>(kNodes);
  if (to - from > int64_t(kNodes)) from = to - int64_t(kNodes);
  for (int64_t seq = from; seq < to; ++seq) {
    NodeSlot& slot = t.nodes[size_t(seq) & (kNodes - 1)];
    if (slot.seq.load(std::memory_order_relaxed) == seq) continue;  // an op within made it
    slot.place.store(place, std::memory_order_relaxed);
    slot.op_seq.store(op_seq, std::memory_order_relaxed);
    slot.seq.store(seq, std::memory_order_release);
  }
}

// Whether PyTorch will call an op again, further in, to do this one's work.
bool transparent(const OpInfo& op, c10::ArrayRef<IValue> args) {
  const auto local = c10::impl::tls_local_dispatch_key_set();
  using K = c10::DispatchKey;
  if (local.included_.has(K::FuncTorchDynamicLayerBackMode) &&
      !local.excluded_.has(K::FuncTorchDynamicLayerBackMode))
    return true;
  if (op.composite && !local.excluded_.has(K::AutogradFunctionality)) {
    bool cuda = false;
    if (op.own_cuda || op.own_cpu)
      for (const IValue& value : args)
        if (value.isTensor() && value.toTensor().defined() && value.toTensor().is_cuda()) cuda = true;
    if (!(cuda ? op.own_cuda : op.own_cpu)) return true;
  }
  if (op.autocast_cpu && !local.excluded_.has(K::AutocastCPU) && local.included_.has(K::AutocastCPU))
    return true;
  if (op.autocast_cuda && !local.excluded_.has(K::AutocastCUDA) && local.included_.has(K::AutocastCUDA))
    return true;
  return local.included_.has(K::FuncTorchDynamicLayerFrontMode) &&
      !local.excluded_.has(K::FuncTorchDynamicLayerFrontMode);
}

// What tensors among the arguments tell: that a compiler traces, that a function transform is at work.
struct Kinds {
  bool traced = false, transformed = false;
};
Kinds kinds(c10::ArrayRef<IValue> args) {
  using K = c10::DispatchKey;
  static const c10::DispatchKeySet odd({K::Functionalize, K::Python, K::FuncTorchBatched, K::FuncTorchGradWrapper});
  Kinds found;
  bool meta = false;
  for (const IValue& value : args) {
    if (value.isDevice()) meta |= value.toDevice().is_meta();
    if (!value.isTensor()) continue;
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) continue;
    auto keys = tensor.unsafeGetTensorImpl()->key_set();
    meta |= keys.has_backend(c10::BackendComponent::MetaBit);
    // Only a tracer makes sizes that are symbols.
    found.traced |= tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides() && !tensor.is_nested();
    if (!keys.has_any(odd)) continue;
    // A fake tensor says it is on the meta device, below Python; what traces it is no work.
    found.traced |= keys.has(K::Functionalize) ||
        (keys.has(K::Python) && keys.has_backend(c10::BackendComponent::MetaBit));
    found.transformed |= keys.has(K::FuncTorchBatched) || keys.has(K::FuncTorchGradWrapper);
  }
  // What a fake tensor is made of, out of the sight of dispatch modes.
  if (meta) found.traced |= c10::impl::tls_local_dispatch_key_set().excluded_.has(K::Python);
  return found;
}

// Whether a compiler or an exporter runs the program on fake tensors to see what it does.
bool tracing() {
  using Modes = c10::impl::TorchDispatchModeTLS;
  using Key = c10::impl::TorchDispatchModeKey;
  if (!Modes::any_modes_set()) return false;
  return Modes::get_mode(Key::FAKE) || Modes::get_mode(Key::PROXY) || Modes::get_mode(Key::FUNCTIONAL);
}

std::unique_ptr<at::ObserverContext> begin(Thread& t, const at::RecordFunction& fn) {
  bool node_scope = fn.scope() == at::RecordScope::BACKWARD_FUNCTION;
  if (node_scope) return nullptr;
  // Within an op that shares its work among threads: they have no Python frames and no direction.
  if (t.silent || at::in_parallel_region()) return nullptr;
  OpInfo* op = find_op(t, fn);
  if (!op || !op->recorded) return nullptr;
  bool below = t.inside > 0;
  if (below && !g_all_levels.load(std::memory_order_relaxed)) return nullptr;
  auto args = fn.inputs();
  Kinds kind = kinds(args);
  if (kind.traced || tracing()) {
    // What a mode of the tracer's does for this op, it does within it.
    auto silent = std::unique_ptr<Context>(new Context);
    silent->thread = &t;
    silent->silent = true;
    ++t.silent;
    return silent;
  }

  bool canonical = !below && !kind.transformed && !transparent(*op, args);
  if (!canonical && !g_all_levels.load(std::memory_order_relaxed)) return nullptr;
  auto context = std::unique_ptr<Context>(new Context);
  Context& c = *context;
  c.thread = &t;
  c.op = op;
  c.timed = t.count++ % kTimedEvery == 0;
  int64_t entered = c.timed ? now() : 0;
  c.canonical = canonical;

  auto node = torch::autograd::get_current_node();
  bool grad = c10::GradMode::is_enabled();
  Category category = kForward;
  int64_t seq = -1;
  uint64_t forward_thread = 0;
  const Place* place = &kNowhere;
  if (!node || (g_creating.load(std::memory_order_relaxed) == 0 && grad)) {
    c.forward = true;
    if (t.flags[0] && !grad)
      category = kOptimizer;
    else if (t.flags[1])
      category = kInput;
    if (g_source.load(std::memory_order_relaxed)) place = t.has_place ? t.place : find_place();
    c.peeked = at::sequence_number::peek();
    // One level of a nest carries the number, so that a backward op finds that one.
    if (canonical) {
      seq = fn.seqNr();
      if (t.filled >= 0 && c.peeked > t.filled) {
        // Nodes made outside any op, by a torch.autograd.Function: this op is its first.
        fill_nodes(t, t.filled, c.peeked, place, c.peeked - 1);
        if (seq < 0) seq = c.peeked - 1;
      }
      t.filled = c.peeked;
      if (seq >= 0) t.last_seq = seq;
    }
    forward_thread = t.record_function_id;
  } else {
    category = kBackward;
    int64_t number = int64_t(node->sequence_nr());
    if (number >= 0) {  // 2⁶⁴−1: AccumulateGrad and the like, made by no op
      forward_thread = node->thread_id();
      seq = number;
      Thread* maker = forward_thread < kMaxForwardThread
          ? global().by_forward_thread[forward_thread].load(std::memory_order_acquire) : nullptr;
      if (maker && maker->nodes) {
        NodeSlot& slot = maker->nodes[size_t(number) & (kNodes - 1)];
        if (slot.seq.load(std::memory_order_acquire) == number) {
          place = slot.place.load(std::memory_order_relaxed);
          seq = slot.op_seq.load(std::memory_order_relaxed);
        }
      }
    }
    if (g_creating.load(std::memory_order_relaxed)) c.peeked = at::sequence_number::peek();
  }
  if (op->communication) category = kCommunication;
  c.seq = seq;
  c.place = place;
  c.entry = find_entry(t, c, *op, category, place, args);
  c.wants = !c.entry->known.load(std::memory_order_acquire);
  if (c.wants) {
    size_t count = std::min(args.size(), op->args.size());
    for (size_t at = 0; at < count; ++at)
      if (op->args[at].kind == ArgInfo::kTensor) input_leaves(c.inputs, args[at]);
  }
  if (c.canonical) ++t.inside;
  c.outer_place = t.place;
  c.outer_has_place = t.has_place;
  if (op->native && c.forward) {
    t.place = place;
    t.has_place = true;
  } else {
    t.has_place = false;
  }
  int64_t payload = -1;
  if (seq >= 0 && seq < kMaxSeq && forward_thread && forward_thread < kMaxForwardThread)
    payload = seq | int64_t(forward_thread) << kSeqBits;
  if (c.timed) t.own_ns.fetch_add(now() - entered, std::memory_order_relaxed);
  push(t, c, c.entry->pushed.load(std::memory_order_acquire), payload);
  return context;
}

void output_piece(std::vector<std::string>& pieces, const IValue& value, const Context& c) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) {
      pieces.push_back("_");
      return;
    }
    for (size_t at = 0; at < c.inputs.size(); ++at)
      if (c.inputs[at] == tensor.unsafeGetTensorImpl()) {
        pieces.push_back("=" + std::to_string(at));
        return;
      }
    pieces.push_back(tensor_text(tensor));
    return;
  }
  if (!value.isList()) {
    pieces.push_back("_");
    return;
  }
  auto values = value.toListRef();
  std::vector<std::vector<std::string>> items(values.size());
  bool same = values.size() > 1;
  for (size_t at = 0; at < values.size(); ++at) {
    output_piece(items[at], values[at], c);
    same = same && items[at] == items[0];
  }
  pieces.push_back("[");
  for (size_t at = 0; at < (same ? 1 : items.size()); ++at) {
    if (at) pieces.push_back(", ");
    pieces.insert(pieces.end(), items[at].begin(), items[at].end());
  }
  pieces.push_back(same ? "]*" + std::to_string(values.size()) : "]");
}

// The text with outputs, and the outputs' own pieces.
Text* complete(Context& c, c10::ArrayRef<IValue> outputs, std::string* result) {
  Entry& entry = *c.entry;
  std::vector<std::string> shown;
  std::string device;
  for (const IValue& value : outputs) find_device(device, value);
  if (c.op->returns == 1 && outputs.size() == 1) {
    const IValue& value = outputs[0];
    if (value.isTensor() && value.toTensor().defined()) {
      shown.push_back(" -> ");
      output_piece(shown, value, c);
    } else if (value.isList()) {
      shown.push_back(" -> (");
      output_piece(shown, value, c);
      shown.push_back(")");
    }
  } else if (outputs.size() > 1) {
    shown.push_back(" -> (");
    for (size_t at = 0; at < outputs.size(); ++at) {
      if (at) shown.push_back(", ");
      output_piece(shown, outputs[at], c);
    }
    shown.push_back(")");
  }
  if (shown.empty()) shown = {" -> (", ")"};
  if (result) {
    *result = joined(shown, kTextLimit);
    result->erase(0, 1);
  }
  uint64_t key = 0;
  if (entry.dynamic) {
    Hasher hash{7};
    for (const auto& piece : shown) hash.add(piece);
    key = hash.state;
  }
  auto pieces = entry.head;
  pieces.insert(pieces.end(), shown.begin(), shown.end());
  if (entry.has_device || device.empty()) {
    pieces.insert(pieces.end(), entry.tail.begin(), entry.tail.end());
  } else {  // a factory: the result tells where it ran; the device stands before the frames
    size_t end = entry.framed;
    pieces.insert(pieces.end(), entry.tail.begin(), entry.tail.begin() + end);
    device_piece(pieces, device);
    pieces.insert(pieces.end(), entry.tail.begin() + end, entry.tail.end());
  }
  Global& g = global();
  std::lock_guard<std::mutex> guard(g.lock);
  if (entry.dynamic) {
    auto found = entry.by_result.find(key);
    if (found != entry.by_result.end()) {
      announce(g, *found->second, c.epoch);
      return found->second;
    }
  }
  Text* text = intern(g, entry, pieces);
  if (c.epoch) announce(g, *text, c.epoch);
  if (entry.dynamic) {
    if (entry.by_result.size() < size_t(kMaxVariants)) entry.by_result[key] = text;
  } else if (entry.kept) {
    entry.pushed.store(text, std::memory_order_release);
    entry.known.store(true, std::memory_order_release);
  }
  return text;
}

void finish(Context& c, const at::RecordFunction& fn) {
  int64_t time = now();  // the first thing after the op
  Thread& t = *c.thread;
  if (&t != t_thread) return;  // ended by another thread: its own range ends with the recording
  if (c.silent) {
    --t.silent;
    return;
  }
  if (c.canonical) --t.inside;
  t.place = c.outer_place;
  t.has_place = c.outer_has_place;
  if (c.peeked >= 0) {
    int64_t peeked = at::sequence_number::peek();
    if (peeked > c.peeked) {
      fill_nodes(t, c.peeked, peeked, c.place, c.seq >= 0 ? c.seq : t.last_seq);
      t.filled = peeked;
    }
  }
  int64_t pop = g_pop_code.load(std::memory_order_relaxed);
  if (c.wants) {
    std::string result;
    Text* text = complete(c, fn.outputs(), c.nvtx ? &result : nullptr);
    pop = kCompleteBase - text->id;
#ifdef OPSCOPE_NVTX
    if (c.nvtx) {
      nvtxEventAttributes_t event{};
      event.version = NVTX_VERSION;
      event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
      event.category = kResultCategory;
      event.messageType = NVTX_MESSAGE_TYPE_ASCII;
      event.message.ascii = result.c_str();
      nvtxDomainMarkEx(global().nvtx, &event);
    }
#endif
  }
#ifdef OPSCOPE_NVTX
  if (c.nvtx) nvtxDomainRangePop(global().nvtx);
#endif
  if (c.epoch && c.epoch == g_epoch.load(std::memory_order_relaxed)) t.put(pop, time);
  t.ops_seen.fetch_add(1, std::memory_order_relaxed);
  if (c.timed) {
    t.own_ns.fetch_add(now() - time, std::memory_order_relaxed);
    t.timed.fetch_add(1, std::memory_order_relaxed);
  }
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& fn) {
  Thread& t = this_thread();
  if (t.busy) return nullptr;  // an op of code that runs while Python is asked, a finalizer say
  t.busy = true;
  std::unique_ptr<at::ObserverContext> context;
  try {
    context = begin(t, fn);
  } catch (...) {  // our fault must never reach the user's program
    g_failures.fetch_add(1);
  }
  t.busy = false;
  return context;
}

void on_end(const at::RecordFunction& fn, at::ObserverContext* context) {
  if (!context) return;
  Thread& t = this_thread();
  t.busy = true;
  try {
    finish(*static_cast<Context*>(context), fn);
  } catch (...) {
    g_failures.fetch_add(1);
  }
  t.busy = false;
}

// ------------------------------------------------------------------------------------- forks

void before_fork() { global().lock.lock(); }
void after_fork_in_parent() { global().lock.unlock(); }
void after_fork_in_child() {
  Global& g = global();
  g_epoch.store(0);
  for (Thread* thread : g.threads)  // only this one lives on here
    if (thread != t_thread) thread->dead.store(true);
  g.strings.clear();
  if (t_thread) {
    t_thread->os_tid = syscall(SYS_gettid);
    t_thread->announced = 0;
    t_thread->inside = 0;
    t_thread->silent = 0;
    t_thread->has_place = false;
    std::memset(t_thread->flags, 0, sizeof t_thread->flags);
  }
  g.lock.unlock();
}

// Moves what a thread has written into ``into`` (or drops it). Under the lock.
void drain(Thread& t, std::vector<char>* into) {
  size_t head = 0;
  int64_t count = 0;
  t.waiting.store(0, std::memory_order_relaxed);
  while (true) {
    Block* block = t.reading;
    int used = block->used.load(std::memory_order_acquire);
    if (used > t.read) {
      if (into) {
        if (!count) {
          head = into->size();
          into->resize(head + 16);
        }
        const char* from = reinterpret_cast<const char*>(block->records[t.read]);
        into->insert(into->end(), from, from + 16 * size_t(used - t.read));
      }
      count += used - t.read;
      t.read = used;
    }
    Block* next = used == kBlock ? block->next.load(std::memory_order_acquire) : nullptr;
    if (!next) break;
    t.reading = next;
    t.read = 0;
    delete block;
  }
  if (into && count) {
    int64_t header[2] = {kChunk - t.index, count};
    std::memcpy(into->data() + head, header, 16);
  }
}

void drain_all(Global& g, std::vector<char>* into) {
  int64_t epoch = g_next_epoch.load();  // of the recording that runs, or was the last
  std::vector<Thread*> kept;
  for (Thread* t : g.threads) {
    bool dead = t->dead.load();
    size_t before = into ? into->size() : 0;
    drain(*t, into);
    if (into && into->size() > before && t->announced != epoch) {
      t->announced = epoch;
      g.taken_threads.insert(
          g.taken_threads.end(), {t->index, t->os_tid, int64_t(t->pthread)});
    }
    // A thread that made autograd nodes is still asked for them when it has ended.
    if (dead && !t->nodes) {
      g.gone.add(*t);
      delete t;
    } else {
      kept.push_back(t);
    }
  }
  g.threads.swap(kept);
}

}  // namespace

// ------------------------------------------------------------------------------ what ctypes calls

#pragma GCC visibility push(default)
extern "C" {

int opscope_abi(void) { return 1; }

int opscope_has_nvtx(void) {
#ifdef OPSCOPE_NVTX
  return 1;
#else
  return 0;
#endif
}

// Once: ``classify`` is a Python callable, code object → file as bytes, empty where not the user's.
void opscope_setup(PyObject* classify, void (*flush)(void), int64_t pop_code) {
  static bool done = false;
  int gil = PyGILState_Ensure();
  Py_IncRef(classify);
  sources().classify = classify;
  PyGILState_Release(gil);
  g_flush = flush;
  g_pop_code.store(pop_code);
  if (!done) pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  done = true;
}

void opscope_options(int shapes, int source, int all_levels) {
  Global& g = global();
  std::lock_guard<std::mutex> guard(g.lock);
  for (auto& [key, entry] : g.entries) g.former.push_back(std::move(entry));
  for (auto& entry : g.varying) g.former.push_back(std::move(entry));
  g.entries.clear();
  g.varying.clear();
  g.variants.clear();
  g_generation.fetch_add(1);
  g_shapes.store(shapes);
  g_source.store(source);
  g_all_levels.store(all_levels);
}

// Begin to observe: for a recording, for an NVTX tool, or both. Twice is once.
void opscope_observe(int nvtx) {
#ifdef OPSCOPE_NVTX
  Global& g = global();
  if (nvtx && !g.nvtx) {
    static const char* names[] = {"forward", "backward", "optimizer", "input", "communication",
                                  "layer", "step", "phase", "spec", "result", "graph"};
    g.nvtx = nvtxDomainCreateA(g.domain.c_str());
    for (uint32_t at = 0; at < sizeof names / sizeof *names; ++at)
      nvtxDomainNameCategoryA(g.nvtx, at + 1, names[at]);
  }
  g_nvtx.store(nvtx);
#endif
  if (g_handle == at::INVALID_CALLBACK_HANDLE)
    g_handle = at::addGlobalCallback(at::RecordFunctionCallback(on_start, on_end)
                                         .needsInputs(true)
                                         .needsOutputs(true)
                                         .scopes({at::RecordScope::FUNCTION}));
}

void opscope_ignore(void) {
  if (g_handle != at::INVALID_CALLBACK_HANDLE) at::removeCallback(g_handle);
  g_handle = at::INVALID_CALLBACK_HANDLE;
  g_nvtx.store(false);
}

// A recording begins (what was left of the last is dropped) or, with 0, ends.
void opscope_record(int on) {
  Global& g = global();
  std::lock_guard<std::mutex> guard(g.lock);
  if (on) {
    g_epoch.store(0);
    drain_all(g, nullptr);
    g.strings.clear();
    g_epoch.store(g_next_epoch.fetch_add(1) + 1);
  } else {
    g_epoch.store(0);
  }
}

// What has been written since the last call; the memory is ours until the next.
// out: events, their bytes, strings, their bytes, threads (index, os tid, pthread id), their number.
void opscope_take(const void** out) {
  Global& g = global();
  std::lock_guard<std::mutex> guard(g.lock);
  g.taken_events.clear();
  g.taken_threads.clear();
  drain_all(g, &g.taken_events);
  g.taken_strings.swap(g.strings);  // after the events: every text they name is in it
  g.strings.clear();
  out[0] = g.taken_events.data();
  out[1] = reinterpret_cast<const void*>(g.taken_events.size());
  out[2] = g.taken_strings.data();
  out[3] = reinterpret_cast<const void*>(g.taken_strings.size());
  out[4] = g.taken_threads.data();
  out[5] = reinterpret_cast<const void*>(g.taken_threads.size() / 3);
}

// This thread's switches: [0] an optimizer steps, [1] a data loader fetches.
int32_t* opscope_flags(void) { return this_thread().flags; }

// A backward pass that builds a graph of its own begins (1) or ends (-1).
void opscope_creating(int change) {
  if (g_creating.fetch_add(change) + change < 0) g_creating.store(0);
}

// ops seen, own time in ns (estimated from a sample), failures, records dropped: since the process began.
void opscope_counts(int64_t* out) {
  Global& g = global();
  std::lock_guard<std::mutex> guard(g.lock);
  Counts all = g.gone;
  for (Thread* t : g.threads) all.add(*t);
  out[0] = all.ops;
  out[1] = all.own_ns;
  out[2] = g_failures.load();
  out[3] = all.dropped;
}

}  // extern "C"
#pragma GCC visibility pop
