// The native observer: a RecordFunction callback that writes each op as a range in opscope's own format.
//
// Plain C ABI, called by ctypes (observer.py). For each op that PyTorch's dispatcher calls, on every thread,
// forward and backward, it hashes a signature (op, shapes, dtypes, strides, scalars, direction, source),
// makes the text once, and writes a push and a pop to this thread's buffer and to NVTX. It takes the GIL only
// to read the Python frames of a forward op. Python takes the buffers when it flushes.
//
// The text must equal, byte for byte, the text of call.py and rangetext.py for the same call.

#include "python.h"

namespace {

// ------------------------------------------------------------------------------------- forks

void before_fork() {
  global().lock.lock();
  blocks().lock().lock();
}
void after_fork_in_parent() {
  blocks().lock().unlock();
  global().lock.unlock();
}
void after_fork_in_child() {
  Global& g = global();
  g_epoch.store(0);
  for (Thread* thread : g.threads)  // only the forking thread exists in the child
    if (thread != t_thread) thread->dead.store(true);
  g.strings.clear();
  if (t_thread) {
    t_thread->os_tid = syscall(SYS_gettid);
    t_thread->announced = 0;
    t_thread->inside = 0;
    t_thread->silent = 0;
    t_thread->has_place = false;
    std::memset(t_thread->flags, 0, sizeof t_thread->flags);
    t_thread->open_epoch = t_thread->begun_epoch = 0;
    t_thread->hooked = false;
  }
  blocks().lock().unlock();
  g.lock.unlock();
}

// Moves a thread's records into ``into``, as one chunk; drops them if ``into`` is null. Under the lock.
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
          into->resize(head + kRecordBytes);
        }
        const char* from = reinterpret_cast<const char*>(block->records[t.read]);
        into->insert(into->end(), from, from + kRecordBytes * size_t(used - t.read));
      }
      count += used - t.read;
      t.read = used;
    }
    Block* next = used == kBlock ? block->next.load(std::memory_order_acquire) : nullptr;
    if (!next) break;
    t.reading = next;
    t.read = 0;
    blocks().put(block);
  }
  if (into && count) {
    int64_t header[2] = {kChunk - t.index, count};
    std::memcpy(into->data() + head, header, kRecordBytes);
  }
}

void drain_all(Global& g, std::vector<char>* into) {
  int64_t epoch = g_next_epoch.load();  // of the current recording, or of the last one
  std::vector<Thread*> kept;
  for (Thread* t : g.threads) {
    bool dead = t->dead.load();
    size_t before = into ? into->size() : 0;
    drain(*t, into);
    if (into && into->size() > before && t->announced != epoch) {
      t->announced = epoch;
      g.taken_threads.insert(g.taken_threads.end(), {t->index, t->os_tid, int64_t(t->pthread)});
    }
    // Backward ops look up the autograd nodes that a thread made even after it has ended: keep such a thread.
    if (dead && !t->nodes) {
      g.gone.add(*t);
      if (t->open) {
        g.orphans.push_back(t->open);
        g.orphaned.store(true);
      }
      delete t;
    } else {
      kept.push_back(t);
    }
  }
  g.threads.swap(kept);
}

}  // namespace

// ------------------------------------------------------------------- functions called by ctypes

#pragma GCC visibility push(default)
extern "C" {

int opscope_abi(void) { return kAbi; }

int opscope_has_nvtx(void) {
#ifdef OPSCOPE_NVTX
  return 1;
#else
  return 0;
#endif
}

// Called once per adapter. ``classify``: a Python callable, code object → file as bytes, empty for files that
// are neither the user's nor a library's. ``flush``: a callable that lets the recorder take the buffers.
// ``python``: Python's version as sys.hexversion >> 16, 0 where it has no GIL.
void opscope_setup(PyObject* classify, PyObject* flush, int64_t pop_code, int python) {
  static bool done = false;
  int gil = PyGILState_Ensure();
  keep(sources().classify, classify);
  keep(g_flush, flush);
  choose_layout(python);
  if (!g_id) g_id = PyUnicode_InternFromString("id");
  if (!g_training) g_training = PyUnicode_InternFromString("training");
  PyGILState_Release(gil);
  g_pop_code.store(pop_code);
  if (!done) pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  if (!done) watch_names();
  done = true;
}

void opscope_options(int shapes, int source, int all_levels) {
  // Known calls stay valid: a call's key covers all that its text has.
  g_shapes.store(shapes);
  g_source.store(source);
  g_all_levels.store(all_levels);
}

#ifdef OPSCOPE_NVTX
namespace {
void open_domain(Global& g) {
  g.nvtx = nvtxDomainCreateA(g.domain.c_str());
  uint32_t number = 0;
  for (const char* name : kCategoryNames) {
    if (name) nvtxDomainNameCategoryA(g.nvtx, number, name);
    ++number;
  }
  for (const char* name : kOtherCategoryNames) nvtxDomainNameCategoryA(g.nvtx, number++, name);
}
}  // namespace
#endif

// In a forked child: makes the domain and its texts anew; emit.py says why.
void opscope_forked(void) {
#ifdef OPSCOPE_NVTX
  Global& g = global();
  std::lock_guard<std::mutex> guard(g.lock);
  if (!g.nvtx) return;
  open_domain(g);
  g.registered = 0;
  g_nvtx_process.fetch_add(1);
#endif
}

// Adds the callback, for a recording, for an NVTX tool, or for both. A second call only updates ``nvtx``.
void opscope_observe(int nvtx) {
#ifdef OPSCOPE_NVTX
  Global& g = global();
  if (nvtx && !g.nvtx) open_domain(g);
  g_nvtx.store(nvtx);
#endif
  if (g_handle != at::INVALID_CALLBACK_HANDLE) return;
  g_observing.fetch_add(1);  // before the callback is added: see ``unhush``
  g_handle = at::addGlobalCallback(at::RecordFunctionCallback(on_start, on_end)
          .needsInputs(true)
          .needsOutputs(!kOutputsOnDemand)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE}));
}

// Removes the callback.
void opscope_ignore(void) {
  g_observing.fetch_add(1);
  if (g_handle != at::INVALID_CALLBACK_HANDLE) at::removeCallback(g_handle);
  g_handle = at::INVALID_CALLBACK_HANDLE;
  g_nvtx.store(false);
}

// Begins a recording whose buffers are taken every ``flush_ns``, and drops what is left of the last one; with
// 0, ends the recording.
void opscope_record(int64_t flush_ns) {
  Global& g = global();
  std::lock_guard<std::mutex> guard(g.lock);
  if (flush_ns) {
    g_flush_ns.store(flush_ns);
    g_due.store(now() + flush_ns);
    g_epoch.store(0);
    drain_all(g, nullptr);
    g.strings.clear();
    g_epoch.store(g_next_epoch.fetch_add(1) + 1);
  } else {
    g_epoch.store(0);
  }
}

// Takes all that was written since the last call. The memory is valid until the next call.
// out: events, their bytes, strings, their bytes, threads (index, os tid, pthread id), their number.
void opscope_take(const void** out) {
  Global& g = global();
  std::lock_guard<std::mutex> guard(g.lock);
  g_due.store(now() + g_flush_ns.load());
  g_flush_asked.store(false);
  g.taken_events.clear();
  g.taken_threads.clear();
  drain_all(g, &g.taken_events);
  g.taken_strings.swap(g.strings);  // after the events, so that it has every text that they name
  g.strings.clear();
  out[0] = g.taken_events.data();
  out[1] = reinterpret_cast<const void*>(g.taken_events.size());
  out[2] = g.taken_strings.data();
  out[3] = reinterpret_cast<const void*>(g.taken_strings.size());
  out[4] = g.taken_threads.data();
  out[5] = reinterpret_cast<const void*>(g.taken_threads.size() / 3);
}

// Takes the ids of all texts that may be pushed again. The memory is valid until the next call.
// out: the ids, their number.
void opscope_texts(const void** out) {
  Global& g = global();
  std::lock_guard<std::mutex> guard(g.lock);
  g.taken_texts.clear();
  for (const auto& one : g.texts) g.taken_texts.push_back(one.second->id);
  out[0] = g.taken_texts.data();
  out[1] = reinterpret_cast<const void*>(g.taken_texts.size());
}

// Sets the function of groups.cpp that names objects from now on.
void opscope_name_objects(const void* (*name)(const void*)) {
  g_object_name.store(name, std::memory_order_release);
}

// Whether frames are read without Python's C API.
int opscope_reads_frames(void) { return g_layout.load() != nullptr; }

// Returns the builtin of python.h with this name, bound to the code of a plain pop; null where there is none.
PyObject* opscope_builtin(const char* name, int64_t plain) {
  for (PyMethodDef& one : kBuiltins)
    if (!std::strcmp(one.name, name)) {
      int gil = PyGILState_Ensure();
      PyObject* bound = PyLong_FromLongLong(plain);
      PyObject* made = bound ? PyCFunction_NewEx(&one, bound, nullptr) : nullptr;
      if (bound) Py_DecRef(bound);
      PyGILState_Release(gil);
      return made;
    }
  return nullptr;
}

// Counts a backward pass that builds an autograd graph: it begins (1) or ends (-1).
void opscope_creating(int change) {
  if (g_creating.fetch_add(change) + change < 0) g_creating.store(0);
}

// Writes the counts since the process began: ops seen, failures, records dropped, our calls, timed calls, ns
// of the timed calls, ns of all work on a new call, place or output; calls by Python's hooks, timed ones, ns
// of the timed ones, ns of those that took too long to stand for others.
void opscope_counts(int64_t* out) {
  Global& g = global();
  std::lock_guard<std::mutex> guard(g.lock);
  Counts all = g.gone;
  for (Thread* t : g.threads) all.add(*t);
  const int64_t found[] = {
      all.ops,
      g_failures.load(),
      all.dropped,
      all.calls,
      all.timed,
      all.own_ns,
      all.slow_ns,
      all.hooks,
      all.hooks_timed,
      all.hook_ns,
      all.hook_long_ns,
  };
  static_assert(sizeof found == kCounts * sizeof *out);
  std::memcpy(out, found, sizeof found);
}

}  // extern "C"
#pragma GCC visibility pop
