// Builtins that Python's hooks call to write layers and phases beside the ops, under the GIL.
//
// While a model runs, its data fills the CPU's caches, so each Python function and object that a hook touches
// costs a cache miss. The common case of a module's call is handled here, at a fifth of the cost.

#pragma once

#include "range.h"

namespace {

// A module. Under the GIL only.
struct Layer {
  int64_t text = -1;  // the number of the text with its path; -1: the module no longer exists
  PyObject* key = nullptr;  // its entry in Python's list of open ranges
};
struct Layers {
  Table<Layer> table;
  std::vector<std::unique_ptr<Layer>> all;
  PyObject *enter = nullptr, *leave = nullptr, *left = nullptr;
  PyObject* forward = nullptr;  // the forward phase's entry in Python's list of open ranges
  int64_t forward_text = -1;
};
Layers& layers() {
  static Layers* one = new Layers;
  return *one;
}
// Names of attributes: ``id`` of a prepared range, ``training`` of a module.
PyObject *g_id = nullptr, *g_training = nullptr;

// Times one outermost call in kHookTimedEvery, a prime, so that it is not always the same module of a model.
struct Sample {
  Thread& t;
  int64_t begin = 0;
  bool outermost;
  explicit Sample(Thread& of) : t(of), outermost(!t.hooked) {
    t.hooked = true;
    if (!outermost) return;
    count(t.hooks);
    if (C10_UNLIKELY(t.hooks.load(std::memory_order_relaxed) % kHookTimedEvery == 0)) begin = now();
  }
  ~Sample() { end(); }
  void end() {
    t.hooked = !outermost;
    if (C10_LIKELY(begin == 0)) return;
    int64_t took = now() - begin;
    begin = 0;
    bool usual = took < kLongestHook;
    count(usual ? t.hook_ns : t.hook_long_ns, took);
    if (usual) count(t.hooks_timed);
  }
};

inline PyObject* answer(PyObject& constant) {
  Py_IncRef(&constant);
  return &constant;
}

inline bool is_int(const PyObject* value) {  // by the two fields of an object that the limited API exposes
  struct Head {
    ssize_t references;
    const PyObject* type;
  };
  return reinterpret_cast<const Head*>(value)->type == &PyLong_Type;
}

// Returns the number of a prepared range's text; -1, with an error set, on failure.
inline int64_t text_number(PyObject* prepared) {
  PyObject* id = PyObject_GetAttr(prepared, g_id);
  if (!id) return -1;
  int64_t number = PyLong_AsLongLong(id);
  Py_DecRef(id);
  return number;
}

// Replaces a reference that native code keeps.
void keep(PyObject*& place, PyObject* value) {
  PyObject* old = place;
  Py_IncRef(place = value);
  if (old) Py_DecRef(old);
}

// Returns the result of a builtin that was called at ``time``: None, after a flush if one is due.
inline PyObject* none_or_flush(int64_t time) {
  bool due = time >= g_due.load(std::memory_order_relaxed);
  return C10_UNLIKELY(due && !flush()) ? nullptr : answer(_Py_NoneStruct);
}

// Calls a Python function that may be replaced while it runs.
template <class... Arguments>
COLD PyObject* call(PyObject* function, Arguments... arguments) {
  Py_IncRef(function);
  PyObject* result = PyObject_CallFunctionObjArgs(function, arguments..., nullptr);
  Py_DecRef(function);
  return result;
}

// Returns this thread's list of open ranges, outermost first: module ids and names of phases. Null where
// these builtins do not write the current recording: then Python's own functions handle the call.
inline PyObject* open_ranges(const Thread& t, int64_t epoch) {
  return epoch && t.open_epoch == epoch && !g_nvtx.load(std::memory_order_relaxed) ? t.open : nullptr;
}

// Releases the references that ended threads have left.
COLD void adopt(Global& g) {
  std::vector<PyObject*> orphans;
  {
    std::lock_guard<std::mutex> guard(g.lock);
    orphans.swap(g.orphans);
    g.orphaned.store(false);
  }
  for (PyObject* one : orphans) Py_DecRef(one);
}

// switch(open, optimizing, waiting, category): sets this thread's list of open ranges and what it is doing.
PyObject* switch_thread(PyObject*, PyObject* const* args, ssize_t) {
  Thread& t = this_thread();
  if (t.open != args[0]) keep(t.open, args[0]);
  t.open_epoch = g_epoch.load();
  t.flags[0] = int32_t(PyLong_AsLong(args[1]));
  t.flags[1] = int32_t(PyLong_AsLong(args[2]));
  t.flags[2] = int32_t(PyLong_AsLong(args[3]));
  if (C10_UNLIKELY(global().orphaned.load(std::memory_order_relaxed))) adopt(global());
  return answer(_Py_NoneStruct);
}

// around(enter, leave, left): sets Python's own functions, called in all but the common case. ``left(module,
// result)`` is called after the outermost module has returned.
PyObject* set_layers(PyObject*, PyObject* const* args, ssize_t) {
  keep(layers().enter, args[0]);
  keep(layers().leave, args[1]);
  keep(layers().left, args[2]);
  return answer(_Py_NoneStruct);
}

// begun(forward, text): notes that steps have begun on this thread. From now on a model's call begins only
// its forward phase.
PyObject* steps_begun(PyObject*, PyObject* const* args, ssize_t) {
  Thread& t = this_thread();
  keep(layers().forward, args[0]);
  layers().forward_text = PyLong_AsLongLong(args[1]);
  t.begun_epoch = g_epoch.load();
  return answer(_Py_NoneStruct);
}

// know(module, key, text): registers a layer: its key in the list of open ranges and the number of its text.
PyObject* know_layer(PyObject*, PyObject* const* args, ssize_t) {
  Layers& all = layers();
  uint64_t key = code_key(args[0]);
  Layer* layer = all.table.find(key);
  if (!layer) {
    all.all.push_back(std::make_unique<Layer>());
    layer = all.all.back().get();
    all.table.insert(key, layer);
  }
  keep(layer->key, args[1]);
  layer->text = PyLong_AsLongLong(args[2]);
  return answer(_Py_NoneStruct);
}

// forget(id): removes a module that no longer exists; another may get its address. forget(None): removes all.
PyObject* forget_layer(PyObject*, PyObject* id) {
  Layers& all = layers();
  if (id == &_Py_NoneStruct) {
    for (auto& layer : all.all) Py_DecRef(layer->key);
    all.table = {};
    all.all.clear();
    return answer(_Py_NoneStruct);
  }
  auto address = reinterpret_cast<PyObject*>(PyLong_AsUnsignedLongLong(id));
  if (Layer* layer = all.table.find(code_key(address))) layer->text = -1;
  return answer(_Py_NoneStruct);
}

// Whether one of the first ``size`` open ranges is a layer.
inline bool in_layer(PyObject* open, ssize_t size) {
  while (size > 0)
    if (is_int(PyList_GetItem(open, --size))) return true;
  return false;
}

// Enters a known layer; returns whether that was done. An outermost module begins the forward phase if no
// range is open but those of optimizers, whose closure calls it.
inline bool enter_known(Thread& t, PyObject* open, const Layer& layer, int64_t epoch) {
  ssize_t size = PyList_Size(open);
  if (!in_layer(open, size)) {
    if (t.begun_epoch != epoch) return false;
    if (size <= t.flags[0]) {
      if (PyList_Append(open, layers().forward)) return false;
      t.put(layers().forward_text, now());
    }
  }
  if (PyList_Append(open, layer.key)) return false;
  t.put(layer.text, now());
  return true;
}

// enter(module): returns True where the layer was pushed here, else the result of Python's own function.
PyObject* enter_layer(PyObject*, PyObject* module) {
  Thread& t = this_thread();
  Sample sample(t);
  int64_t epoch = g_epoch.load(std::memory_order_relaxed);
  if (PyObject* open = open_ranges(t, epoch)) {
    Layer* layer = layers().table.find(code_key(module));
    if (C10_LIKELY(layer && layer->text >= 0 && enter_known(t, open, *layer, epoch)))
      return answer(_Py_TrueStruct);
    if (!forgiven()) return nullptr;  // after a failure to extend the list, for want of memory
  }
  return call(layers().enter, module);
}

// Whether a module is in training and grad mode is on. False, with an error set, where the attribute cannot
// be read; the error may be the module's own.
inline bool trains(PyObject* module) {
  if (!c10::GradMode::is_enabled()) return false;
  PyObject* training = PyObject_GetAttr(module, g_training);
  if (!training) return false;
  Py_DecRef(training);
  return training == &_Py_TrueStruct;
}

// leave(entered, module, result): closes the layer. ``entered`` is the result of ``enter``, ``result`` the
// module's.
PyObject* leave_layer(PyObject*, PyObject* const* args, ssize_t) {
  int64_t time = now();
  Thread& t = this_thread();
  Sample sample(t);
  int64_t epoch = g_epoch.load(std::memory_order_relaxed);
  PyObject* open = args[0] == &_Py_TrueStruct ? open_ranges(t, epoch) : nullptr;
  ssize_t top = open ? PyList_Size(open) - 1 : -1;
  Layer* layer = top >= 0 ? layers().table.find(code_key(args[1])) : nullptr;
  if (C10_UNLIKELY(!layer || PyList_GetItem(open, top) != layer->key))
    return call(layers().leave, args[0], args[1], args[2]);
  t.put(g_pop_code.load(std::memory_order_relaxed), time);
  PyList_SetSlice(open, top, top + 1, nullptr);
  // in training the forward phase lasts longer than the model's call
  if (!in_layer(open, top) && !trains(args[1]))
    return forgiven() ? call(layers().left, args[1], args[2]) : nullptr;
  sample.end();
  return none_or_flush(time);
}

// push, pop and mark of an emitter with no listener but a recorder, bound to the code of its plain pop.
// push(prepared, seq = -1, thread = 0).
PyObject* push_range(PyObject*, PyObject* const* args, ssize_t size) {
  Thread& t = this_thread();
  Sample sample(t);
  int64_t text = text_number(args[0]);
  if (text < 0) return nullptr;
  if (!g_epoch.load(std::memory_order_relaxed)) return answer(_Py_NoneStruct);
  if (size > 1) {
    int64_t seq = PyLong_AsLongLong(args[1]), thread = size > 2 ? PyLong_AsLongLong(args[2]) : 0;
    if (!forgiven()) return nullptr;
    if (seq >= 0 && seq < kMaxSeq && uint64_t(thread) < kMaxForwardThread)
      t.put(kPayload, seq | thread << kSeqBits);
  }
  t.put(text, now());
  return answer(_Py_NoneStruct);
}

// pop(complete = None)
PyObject* pop_range(PyObject* plain, PyObject* const* args, ssize_t size) {
  int64_t time = now();
  Thread& t = this_thread();
  Sample sample(t);
  int64_t code = PyLong_AsLongLong(plain);
  if (size > 0 && args[0] != &_Py_NoneStruct) {
    int64_t text = text_number(args[0]);
    if (text < 0) return nullptr;
    code = kCompleteBase - text;
  }
  if (!g_epoch.load(std::memory_order_relaxed)) return answer(_Py_NoneStruct);
  t.put(code, time);
  sample.end();
  return none_or_flush(time);
}

// mark(prepared)
PyObject* mark_range(PyObject*, PyObject* const* args, ssize_t) {
  int64_t time = now();
  Thread& t = this_thread();
  Sample sample(t);
  int64_t text = text_number(args[0]);
  if (text < 0) return nullptr;
  if (!g_epoch.load(std::memory_order_relaxed)) return answer(_Py_NoneStruct);
  t.put(kMarkBase + text, time);
  sample.end();
  return none_or_flush(time);
}

// Calls ``function`` if it has got enough arguments, else raises TypeError.
template <ssize_t least, PyObject* (*function)(PyObject*, PyObject* const*, ssize_t)>
PyObject* counted(PyObject* self, PyObject* const* args, ssize_t size) {
  if (C10_LIKELY(size >= least)) return function(self, args, size);
  PyErr_SetString(PyExc_TypeError, "too few arguments");
  return nullptr;
}
template <ssize_t least, PyObject* (*function)(PyObject*, PyObject* const*, ssize_t)>
PyCFunction fast() {
  return reinterpret_cast<PyCFunction>(counted<least, function>);
}
PyMethodDef kBuiltins[] = {
    {"switch", fast<4, switch_thread>(), kFastcall, nullptr},
    {"around", fast<3, set_layers>(), kFastcall, nullptr},
    {"begun", fast<2, steps_begun>(), kFastcall, nullptr},
    {"know", fast<3, know_layer>(), kFastcall, nullptr},
    {"forget", forget_layer, kOneArgument, nullptr},
    {"enter", enter_layer, kOneArgument, nullptr},
    {"leave", fast<3, leave_layer>(), kFastcall, nullptr},
    {"push", fast<1, push_range>(), kFastcall, nullptr},
    {"pop", fast<0, pop_range>(), kFastcall, nullptr},
    {"mark", fast<1, mark_range>(), kFastcall, nullptr},
};

}  // namespace
