// Finds a call by its signature or makes it, and pushes its range to the recording and to NVTX.

#pragma once

#include "frames.h"

namespace {

// ------------------------------------------------------------------------------- one op's range

// What ``on_start`` passes to ``on_end`` of the same op.
struct Context : at::ObserverContext {
  Entry* entry = nullptr;
  std::unique_ptr<Entry> own;  // an entry beyond kMaxEntries
  OpInfo* op = nullptr;
  Thread* thread = nullptr;
  const Place* outer_place = nullptr;
  const Place* place = nullptr;
  int64_t epoch = 0;
  int64_t peeked = -1;
  int64_t seq = -1;
  uint64_t forward_thread = 0;  // the forward thread of ``seq``
  int64_t hushed = -1;  // the value of g_observing when our callback was removed for inner calls
  bool canonical = false, forward = false, outer_has_place = false, nvtx = false;
  bool timed = false;
  bool makes = false;   // the op may make autograd nodes
  bool wants = false;   // the outputs are needed
  bool silent = false;  // neither the op nor its inner calls are recorded
  std::vector<const c10::TensorImpl*> inputs;  // addresses only, to recognise outputs that are inputs

  static void* operator new(size_t size, Thread& t) {
    if (void* one = t.free_context) {
      t.free_context = nullptr;
      return one;
    }
    if (t.free_contexts.empty()) return ::operator new(size);
    void* one = t.free_contexts.back();
    t.free_contexts.pop_back();
    return one;
  }
  static void operator delete(void* one) {
    Thread* t = t_thread;
    if (t && !t->free_context)
      t->free_context = one;
    else if (t && t->free_contexts.size() < 256)
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

KeptPieces kept_pieces(const Pieces& pieces, std::pmr::memory_resource* in) {
  KeptPieces kept(in);
  kept.reserve(pieces.size());
  for (const auto& piece : pieces) kept.emplace_back(piece.data(), piece.size());
  return kept;
}

// Formats a parameter; empty for one that the text omits. ``varies``: the numbers change all the time, so the
// text has ``varies`` instead.
std::string param_piece(const ArgInfo& arg, const IValue& value, bool varies) {
  if (value.isNone()) return "";
  if (arg.kind == ArgInfo::kTensor) {
    if (!value.isTensor() || !is_wrapped(value.toTensor())) return "";
    bool boolean = value.toTensor().scalar_type() == at::kBool;
    return varies && !boolean ? "\"varies\"" : wrapped_text(value.toTensor());
  }
  if (arg.kind == ArgInfo::kDtype && value.isInt()) return json(dtype_name(at::ScalarType(value.toInt())));
  if (arg.kind == ArgInfo::kLayout && value.isInt()) return layout_name(value.toInt());
  if (arg.kind == ArgInfo::kMemoryFormat && value.isInt()) return memory_format_name(value.toInt());
  return varies && has_number(value) ? "\"varies\"" : param_text(value);
}

// Properties of the tensors among the arguments: whether a compiler traces, whether a function transform is
// active, whether a subclass of a tensor (a DTensor) takes the op.
struct Kinds {
  bool meta = false, traced = false, transformed = false, subclass = false;
  explicit Kinds(c10::ArrayRef<IValue> args) {
    for (const IValue& value : args)
      if (value.isTensor() && value.toTensor().defined())
        look(value.toTensor().unsafeGetTensorImpl());
      else if (value.isTensorList() && !value.toListRef().empty())
        look(value.toListRef()[0].toTensor().unsafeGetTensorImpl());  // a list has tensors of one kind
      else if (value.isDevice())
        meta |= value.toDevice().is_meta();
  }
  void look(const c10::TensorImpl* impl) {
    using K = c10::DispatchKey;
    constexpr c10::DispatchKeySet odd(
        {K::Functionalize, K::Python, K::FuncTorchBatched, K::FuncTorchGradWrapper});
    auto keys = impl->key_set();
    bool on_meta = keys.has_backend(c10::BackendComponent::MetaBit);
    meta |= on_meta;
    // Only a tracer makes symbolic sizes.
    traced |= impl->has_symbolic_sizes_strides() && !impl->is_nested();
    if (C10_LIKELY(!keys.has_any(odd))) return;
    // A fake tensor has the meta device and the Python key; an op on it is tracing, not work.
    traced |= keys.has(K::Functionalize) || (keys.has(K::Python) && on_meta);
    transformed |= keys.has(K::FuncTorchBatched) || keys.has(K::FuncTorchGradWrapper);
    subclass |= keys.has(K::Python);
  }
};

// Writes the tensors into ``head`` and the parameters into ``tail``. Returns the device.
std::string write_arguments(
    Pieces& head, Pieces& tail, const OpInfo& op, c10::ArrayRef<IValue> args, bool varies) {
  std::string device;
  size_t count = std::min(args.size(), op.args.size());
  bool first = true;
  for (size_t at = 0; at < count; ++at) {
    find_device(device, args[at]);
    if (op.args[at].kind != ArgInfo::kTensor) continue;
    if (!first) head.push_back(", ");
    first = false;
    write_arg(head, args[at], !varies);
  }
  bool any = false;
  for (size_t at = 0; at < count; ++at) {
    const ArgInfo& arg = op.args[at];
    std::string text = param_piece(arg, args[at], varies);
    if (text.empty()) continue;
    if (arg.is_device && args[at].isDevice() && device.empty()) device = args[at].toDevice().str();
    if (!any) tail.push_back(" {");
    tail.push_back((any ? ", " : "") + arg.key + "=" + text);
    any = true;
  }
  if (Kinds(args).subclass) {
    tail.push_back(std::string(any ? ", " : " {") + kSubclass + "=true");
    any = true;
  }
  if (any) tail.push_back("}");
  return device;
}

Entry* make_entry(Global& g, const OpInfo& op, Category category, const Place* place,
    c10::ArrayRef<IValue> args, bool dynamic, bool varies, bool kept) {
  std::pmr::memory_resource* in = kept ? &g.kept.pool : std::pmr::new_delete_resource();
  Entry* entry = kept ? g.kept.make<Entry>(in) : new Entry(in);
  std::unique_ptr<Entry> guard(kept ? nullptr : entry);
  Pieces head{op.name, "("}, tail;
  entry->category = category;
  entry->kept = kept;
  bool shapes = g_shapes.load();
  entry->dynamic = dynamic && shapes;
  std::string device;
  if (shapes) {
    for (const IValue& value : args) entry->dynamic |= holds_data(value);
    device = write_arguments(head, tail, op, args, varies);
  }
  head.push_back(")");
  entry->has_device = !device.empty();
  entry->placed = tail.size();
  device_piece(tail, device);
  tail.insert(tail.end(), place->pieces.begin(), place->pieces.end());
  Pieces pieces = head;
  pieces.insert(pieces.end(), tail.begin(), tail.end());
  entry->pushed.store(intern(g, *entry, pieces, head.size() + entry->placed));
  if (shapes) {
    entry->head = kept_pieces(head, in);
    entry->tail = kept_pieces(tail, in);
  }
  entry->known.store(!shapes);
  guard.release();
  return entry;
}

// Prefetches, all at once, the fields of its thread that a call reads.
inline void fetch(const Thread& t) {
  auto from = reinterpret_cast<const char*>(&t.ops), to = reinterpret_cast<const char*>(&t.open);
  for (; from < to; from += kLine) __builtin_prefetch(from);
}

// Prefetches the fields that the end of a call reads.
inline void fetch(const Thread& t, const Context& c) {
  for (size_t at = kLine; at < sizeof c; at += kLine)  // the first line is read immediately
    __builtin_prefetch(reinterpret_cast<const char*>(&c) + at);
  __builtin_prefetch(&t.writing);
  __builtin_prefetch(&t.tls);
}

// Prefetches the fields of the argument tensors that the rest of a call reads.
inline void fetch(c10::ArrayRef<IValue> args) {
  for (const IValue& value : args)
    if (value.isTensor()) {
      auto impl = reinterpret_cast<const char*>(value.toTensor().unsafeGetTensorImpl());
      for (size_t at = kLine; at < sizeof(c10::TensorImpl); at += kLine) __builtin_prefetch(impl + at);
    }
}

// Hashes the arguments only; ``signature`` adds the place and the direction.
template <bool numbers>
uint64_t hash_arguments(const OpInfo* of, const OpTraits& op, c10::ArrayRef<IValue> args) {
  Hasher hash{0x6f70u ^ uint64_t(of)};
  if (!g_shapes.load(std::memory_order_relaxed)) return ~hash.state;
  size_t count = std::min<size_t>(args.size(), op.count);
  for (size_t at = 0; at < count; ++at) {
    bool plain = at < 64 ? op.plain >> at & 1 : of->args[at].kind == ArgInfo::kOther;
    sign(hash, args[at], numbers, plain);
  }
  return hash.state;
}

inline uint64_t signature(uint64_t arguments, Category category, const Place* place) {
  Hasher hash{arguments};
  hash.add(uint64_t(place), uint64_t(category));
  return hash.state | 1;
}

COLD Entry* new_entry(Thread& t, Context& context, const OpInfo& op, Category category, const Place* place,
    c10::ArrayRef<IValue> args, uint64_t key) {
  uint64_t bare = signature(hash_arguments<false>(&op, op, args), category, place) ^ 0x5bd1e99500000000ull;
  if (Entry* found = t.calls_seen.find(bare)) return found;
  Slow slow(t);
  Global& g = global();
  std::lock_guard<std::mutex> guard(g.lock);
  auto& variant = g.variants[bare];
  if (variant.all) {  // the numbers change all the time
    t.calls_seen.insert(bare, variant.all);
    return variant.all;
  }
  auto there = g.entries.find(key);
  if (there != g.entries.end()) {
    t.calls_seen.insert(key, there->second);
    return there->second;
  }
  if (g.entries.size() + g.varying >= kMaxEntries) {
    context.own.reset(make_entry(g, op, category, place, args, true, false, false));
    if (variant.seen == 0) g.variants.erase(bare);
    return context.own.get();
  }
  if (variant.seen >= kMaxVariants) {
    variant.all = make_entry(g, op, category, place, args, true, true, true);
    ++g.varying;
    return variant.all;
  }
  ++variant.seen;
  Entry* entry = make_entry(g, op, category, place, args, op.dynamic, false, true);
  g.entries.emplace(key, entry);
  t.calls_seen.insert(key, entry);
  return entry;
}

// Returns this thread's slot for the call of this signature; null where the thread does not know it.
inline CallSlot* find_call(Thread& t, uint64_t key) { return t.calls_seen.slot(key); }

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
    event.message.ascii = text.shown.data();
  }
  if (payload >= 0) {
    event.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    event.payload.llValue = payload;
  }
  return event;
}
#endif

// Clears an error of ours. Returns false if an error remains: one that interrupts the program (Ctrl-C while
// Python code ran for us).
inline bool forgiven() {
  if (!PyErr_Occurred()) return true;
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;
  PyErr_Clear();
  return true;
}

// Flushes, under the GIL. Returns false, with the error set, if the program was interrupted meanwhile.
COLD bool flush() {
  PyObject* done = g_flush ? PyObject_CallFunctionObjArgs(g_flush, nullptr) : nullptr;
  if (done) Py_DecRef(done);
  return done || forgiven();
}

int flush_in_python(void*) {
  g_flush_asked.store(false);
  return flush() ? 0 : -1;
}

COLD void announce_first(Thread& t, Text& text, int64_t epoch) {
  Slow slow(t);
  Global& g = global();
  std::lock_guard<std::mutex> guard(g.lock);
  announce(g, text, epoch);
}

// Writes the push into the recording: the last action before the op.
inline void record_push(Thread& t, Context& c, int64_t text, int64_t payload) {
  int64_t waiting = t.waiting.load(std::memory_order_relaxed);
  if (C10_UNLIKELY(waiting > kAskFlush)) {
    if (waiting > kMaxWaiting) {  // no flush happens: drop the range rather than exhaust memory
      count(t.dropped);
      c.epoch = 0;
      return;
    }
    if (!g_flush_asked.exchange(true) && Py_IsInitialized() && Py_AddPendingCall(flush_in_python, nullptr))
      g_flush_asked.store(false);  // Python's queue of pending calls is full: try again later
  }
  t.waiting.store(waiting + 3, std::memory_order_relaxed);  // payload, push, pop; ``drain`` resets it
  if (payload >= 0) t.put(kPayload, payload);
  t.put(text, now());
}

APART void push(Thread& t, Context& c, Text* text, int64_t payload) {
  if (c.epoch && text->epoch.load(std::memory_order_relaxed) != c.epoch) announce_first(t, *text, c.epoch);
#ifdef OPSCOPE_NVTX
  if (g_nvtx.load(std::memory_order_relaxed)) {
    if (C10_UNLIKELY(text->process != g_nvtx_process.load(std::memory_order_relaxed))) {
      std::lock_guard<std::mutex> guard(global().lock);
      register_text(global(), *text);
    }
    auto event = attributes(*text, payload);
    nvtxDomainRangePushEx(global().nvtx, &event);
    c.nvtx = true;
  }
#endif
  if (c.epoch) record_push(t, c, text->id, payload);
}

}  // namespace
