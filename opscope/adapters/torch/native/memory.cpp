// The memory observer: wraps PyTorch's CPU allocator and records each allocation and each release of a block.
//
// Plain C ABI, called by ctypes (memory.py). A separate library, built only where memory is recorded.
// PyTorch's own reporting (c10::reportMemoryUsageToProfiler) uses the slot that torch.profiler needs: while
// another tool occupies the slot, the profiler refuses to start, and threads that do not inherit the slot
// report nothing. An allocator works on every thread and disturbs nobody.

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

extern "C" {
typedef struct _object PyObject;
int Py_AddPendingCall(int (*)(void*), void*);
PyObject* PyObject_CallFunctionObjArgs(PyObject*, ...);
void Py_IncRef(PyObject*);
void Py_DecRef(PyObject*);
int PyErr_ExceptionMatches(PyObject*);
void PyErr_Clear(void);
int PyGILState_Ensure(void);
void PyGILState_Release(int);
extern PyObject* PyExc_Exception;
int Py_IsInitialized(void);
}

namespace {

// ------------------------------------------------------------------ constants shared with Python
// Each has its counterpart in Python; tests/test_native_constants.py compares them all.
// memory.py
constexpr int kAbi = 3;
constexpr size_t kCounts = 6;  // the number of values that opscope_memory_counts writes
// One call of a thread in this many is timed, to measure our own cost.
constexpr int64_t kTimedEvery = 64;
// core/recording_format.py: MEMORY_RECORD.
struct Record {
  int64_t time;
  uint64_t address;
  int64_t bytes;  // kUnknown for a release: the allocation of the same address has the size
  int32_t thread;
  int16_t device;
  int16_t kind;
};
constexpr size_t kRecordBytes = 32;
static_assert(sizeof(Record) == kRecordBytes);
constexpr int64_t kUnknown = -1;
constexpr int16_t kCpu = -1;
constexpr int16_t kAllocated = 0, kReleased = 1;

// -------------------------------------------------------------------------- constants of our own

// Waiting records of one thread: from kAskFlush on a flush is requested from Python, from kMaxWaiting on new
// records are dropped.
constexpr size_t kAskFlush = 16384;
constexpr size_t kMaxWaiting = size_t(1) << 20;
// ns. A timed call that takes longer was interrupted by another process: it counts once, not as a sample.
constexpr int64_t kLongestSample = 100'000;

int64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);  // the clock of time.perf_counter_ns on Linux
  return int64_t(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

struct Cost {
  int64_t calls = 0, timed = 0, timed_ns = 0, long_ns = 0;
  void add(const Cost& other) {
    calls += other.calls;
    timed += other.timed;
    timed_ns += other.timed_ns;
    long_ns += other.long_ns;
  }
  void sample(int64_t took) {
    if (took < kLongestSample) {
      ++timed;
      timed_ns += took;
    } else {
      long_ns += took;
    }
  }
};

struct Thread {
  std::mutex lock;  // contended only while records are taken
  std::vector<Record> records;
  Cost cost;
  int32_t os_tid = int32_t(syscall(SYS_gettid));
  bool dead = false;
};

struct Global {
  std::mutex lock;
  std::vector<Thread*> threads;
  std::vector<Record> taken;
  Cost gone;  // of threads that have ended
};

Global& global() {
  static Global* one = new Global;  // never destroyed: blocks are released after static destruction
  return *one;
}

std::atomic<bool> g_on{false};
std::atomic<bool> g_flush_asked{false};
std::atomic<int64_t> g_dropped{0}, g_unwrapped{0};
PyObject* g_flush = nullptr;  // a Python function

thread_local Thread* t_thread = nullptr;
thread_local bool t_left = false;
struct Leaving {
  bool armed = false;
  ~Leaving() {
    if (t_thread) {
      std::lock_guard<std::mutex> guard(t_thread->lock);
      t_thread->dead = true;
    }
    t_thread = nullptr;
    t_left = true;  // releases by later destructors of this thread are no longer recorded
  }
};
thread_local Leaving t_leaving;

int flush_in_python(void*) {
  g_flush_asked.store(false);
  PyObject* done = PyObject_CallFunctionObjArgs(g_flush, nullptr);
  if (done) {
    Py_DecRef(done);
  } else {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return -1;  // Ctrl-C during the flush
    PyErr_Clear();
  }
  return 0;
}

// Records an allocation or a release. This is our whole cost of a block, except for a few ns to replace its
// deleter.
void put(int16_t kind, void* address, int64_t bytes) {
  int64_t time = now();
  if (t_left) {
    g_dropped.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  Thread* thread = t_thread;
  if (!thread) {
    thread = new Thread;
    Global& g = global();
    std::lock_guard<std::mutex> guard(g.lock);
    g.threads.push_back(thread);
    t_thread = thread;
    t_leaving.armed = true;
  }
  size_t waiting;
  bool timed;
  {
    std::lock_guard<std::mutex> guard(thread->lock);
    timed = ++thread->cost.calls % kTimedEvery == kTimedEvery / 2;
    waiting = thread->records.size();
    if (waiting < kMaxWaiting)
      thread->records.push_back({time, uint64_t(address), bytes, thread->os_tid, kCpu, kind});
  }
  if (waiting >= kMaxWaiting) g_dropped.fetch_add(1, std::memory_order_relaxed);
  if (waiting >= kAskFlush && !g_flush_asked.exchange(true) && Py_IsInitialized() &&
      Py_AddPendingCall(flush_in_python, nullptr))
    g_flush_asked.store(false);  // Python's queue of pending calls is full: try again later
  if (timed) {
    int64_t took = now() - time;
    std::lock_guard<std::mutex> guard(thread->lock);
    thread->cost.sample(took);
  }
}

// -------------------------------------------------------------------------------- the allocator

c10::Allocator* g_inner = nullptr;
c10::DeleterFnPtr g_release = nullptr;  // the deleter of the inner allocator's blocks

void release(void* block) {
  if (g_on.load(std::memory_order_relaxed)) {
    try {
      put(kReleased, block, kUnknown);  // before the release: afterwards another block may get the address
    } catch (...) {
      g_dropped.fetch_add(1, std::memory_order_relaxed);
    }
  }
  g_release(block);
}

struct Watching final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr block = g_inner->allocate(bytes);
    if (!bytes || !g_on.load(std::memory_order_relaxed)) return block;
    // Record only blocks whose release is recorded too: others would seem to live for ever.
    if (block.get() != block.get_context() || !block.compare_exchange_deleter(g_release, release)) {
      g_unwrapped.fetch_add(1, std::memory_order_relaxed);
      return block;
    }
    try {
      put(kAllocated, block.get(), int64_t(bytes));
    } catch (...) {
      g_dropped.fetch_add(1, std::memory_order_relaxed);
    }
    return block;
  }
  bool is_simple_data_ptr(const c10::DataPtr& block) const override {
    return g_inner->is_simple_data_ptr(block);
  }
  // Valid for blocks of either allocator: the raw interface frees with the allocator that is set at that
  // time.
  c10::DeleterFnPtr raw_deleter() const override { return release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    g_inner->copy_data(to, from, bytes);
  }
};

Watching& watching() {
  static Watching* one = new Watching;  // never destroyed: storages keep a pointer to it as long as they live
  return *one;
}

// ---------------------------------------------------------------------------------------- forks

void before_fork() { global().lock.lock(); }
void after_fork_in_parent() { global().lock.unlock(); }
void after_fork_in_child() {
  Global& g = global();
  g_on.store(false);  // a recording of the child switches it on again
  g_flush_asked.store(false);
  g.threads.clear();  // not deleted: the lock of another thread may stay locked for ever
  g.lock.unlock();
  if (!t_thread) return;
  t_thread->records.clear();
  t_thread->os_tid = int32_t(syscall(SYS_gettid));
  g.threads.push_back(t_thread);
}

void drain(Global& g, std::vector<Record>* into) {
  std::vector<Thread*> kept;
  for (Thread* thread : g.threads) {
    bool dead;
    {
      std::lock_guard<std::mutex> guard(thread->lock);
      if (into) into->insert(into->end(), thread->records.begin(), thread->records.end());
      thread->records.clear();
      dead = thread->dead;
    }
    if (dead) {
      g.gone.add(thread->cost);
      delete thread;
    } else {
      kept.push_back(thread);
    }
  }
  g.threads.swap(kept);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int opscope_memory_abi(void) { return kAbi; }

// Begins a recording. Returns null, or the reason why it cannot.
const char* opscope_memory_start(PyObject* flush) {
  int gil = PyGILState_Ensure();
  if (!g_flush) Py_IncRef(g_flush = flush);
  PyGILState_Release(gil);
  static bool watched = false;
  Global& g = global();
  std::lock_guard<std::mutex> guard(g.lock);
  c10::Allocator* current = c10::GetCPUAllocator();
  if (current != &watching()) {
    auto deleter = current->raw_deleter();
    if (!deleter) return "the CPU allocator names no function that releases its blocks (raw_deleter)";
    // Live blocks of an earlier recording are released by the deleter that was set when they were made.
    if (g_release && deleter != g_release) return "the CPU allocator was replaced since an earlier recording";
    g_inner = current;
    g_release = deleter;
    c10::SetCPUAllocator(&watching());
    if (c10::GetCPUAllocator() != &watching()) return "another CPU allocator was set with a higher priority";
  }
  if (!watched) pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  watched = true;
  drain(g, nullptr);
  g_on.store(true);
  return nullptr;
}

// Ends the recording: restores the original allocator, unless another was set after ours.
void opscope_memory_stop(void) {
  Global& g = global();
  std::lock_guard<std::mutex> guard(g.lock);
  g_on.store(false);
  if (c10::GetCPUAllocator() == &watching()) c10::SetCPUAllocator(g_inner);
}

// Writes the address and the bytes of all records since the last call to ``out``. The memory is valid until
// the next call.
void opscope_memory_take(const void** out) {
  Global& g = global();
  std::lock_guard<std::mutex> guard(g.lock);
  g.taken.clear();
  drain(g, &g.taken);
  out[0] = g.taken.data();
  out[1] = reinterpret_cast<const void*>(g.taken.size() * sizeof(Record));
}

// Writes the counts since the process began: records dropped, blocks that could not be wrapped, our calls,
// timed calls, ns of the timed calls, ns of calls that were interrupted.
void opscope_memory_counts(int64_t* out) {
  Global& g = global();
  std::lock_guard<std::mutex> guard(g.lock);
  Cost all = g.gone;
  for (Thread* thread : g.threads) {
    std::lock_guard<std::mutex> guard(thread->lock);
    all.add(thread->cost);
  }
  const int64_t found[] = {
      g_dropped.load(),
      g_unwrapped.load(),
      all.calls,
      all.timed,
      all.timed_ns,
      all.long_ns,
  };
  static_assert(sizeof found == kCounts * sizeof *out);
  std::memcpy(out, found, sizeof found);
}

}  // extern "C"
#pragma GCC visibility pop
