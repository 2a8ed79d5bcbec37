// Handles one op: its begin, its direction and place, its outputs, its end.

#pragma once

#include "collectives.h"

namespace {

// Notes which op made the autograd nodes [``from``, ``to``), and at which place.
void fill_nodes(Thread& t, int64_t from, int64_t to, const Place* place, int64_t op_seq, uint64_t op_thread) {
  if (!t.nodes) t.nodes = std::make_unique<NodeSlot[]>(kNodes);
  if (to - from > int64_t(kNodes)) from = to - int64_t(kNodes);
  for (int64_t seq = from; seq < to; ++seq) {
    NodeSlot& slot = t.nodes[size_t(seq) & (kNodes - 1)];
    if (slot.seq.load(std::memory_order_relaxed) == seq) continue;  // an inner op made it
    slot.place.store(place, std::memory_order_relaxed);
    slot.op.store(op_seq >= 0 && op_thread < kMaxForwardThread ? op_seq | int64_t(op_thread) << kSeqBits : -1,
        std::memory_order_relaxed);
    slot.seq.store(seq, std::memory_order_release);
  }
}

// Whether PyTorch does this op's work by calling ops again, below this level.
inline bool transparent(
    const OpTraits& op, c10::ArrayRef<IValue> args, c10::impl::LocalDispatchKeySet local) {
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

// Whether a compiler or an exporter traces the program with fake tensors.
bool tracing() {
  using Modes = c10::impl::TorchDispatchModeTLS;
  using Key = c10::impl::TorchDispatchModeKey;
  return Modes::get_mode(Key::FAKE) || Modes::get_mode(Key::PROXY) || Modes::get_mode(Key::FUNCTIONAL);
}

// Begins an op that is only traced. Neither it nor the ops that the tracer's mode runs within it are
// recorded.
COLD std::unique_ptr<at::ObserverContext> begin_silence(Thread& t, const at::RecordFunction& fn) {
  auto silent = std::unique_ptr<Context>(new (t) Context);
  silent->thread = &t;
  silent->silent = true;
  ++t.silent;
  hush(t, *silent, fn);
  return silent;
}

// Assigns autograd nodes that were made outside any op, by a torch.autograd.Function, to its first op, ``c``.
COLD void adopt_nodes(Thread& t, const Context& c) {
  fill_nodes(t, t.filled, c.peeked, c.place, c.peeked - 1, t.record_function_id);
}

// Finds the text of a call that this thread has not pushed yet in this recording, or of any call while an
// NVTX tool listens.
APART Text* find_text(Thread& t, Context& c, const at::RecordFunction& fn, c10::ArrayRef<IValue> args,
    Category category, uint64_t key) {
  CallSlot* call = find_call(t, key);
  c.entry = call ? call->value : new_entry(t, c, *c.op, category, c.place, args, key);
  c.wants = !c.entry->known.load(std::memory_order_acquire);
  Text* text = c.entry->pushed.load(std::memory_order_acquire);
  if (c.wants) {
    want_outputs(fn);
    size_t count = std::min(args.size(), c.op->args.size());
    for (size_t at = 0; at < count; ++at)
      if (c.op->args[at].kind == ArgInfo::kTensor) input_leaves(c.inputs, args[at]);
  } else if (call && c.epoch) {
    if (text->epoch.load(std::memory_order_relaxed) != c.epoch) announce_first(t, *text, c.epoch);
    call->text = text->id;
    call->epoch = c.epoch;
  }
  return text;
}

// A call's direction and origin: the data of its range beside the text.
struct Way {
  Category category = kForward;
  int64_t seq = -1;             // sequence number of the op, or of the op that it differentiates
  uint64_t forward_thread = 0;  // the forward thread of ``seq``
  const Place* place = &kNowhere;
};

// Returns the ``Way`` of a forward op, or of an op that a backward pass runs to build an autograd graph.
inline Way forward_way(
    Thread& t, Context& c, const OpTraits& op, const at::RecordFunction& fn, bool in_node) {
  Way way;
  c.forward = true;
  way.seq = fn.seqNr();  // set only where grad mode is on
  bool grad = way.seq >= 0 || c10::GradMode::is_enabled();
  if (t.flags[0] && !grad)
    way.category = kOptimizer;
  else if (t.flags[1])
    way.category = kInput;
  if (g_source.load(std::memory_order_relaxed)) way.place = t.has_place ? t.place : find_place(t);
  c.peeked = way.seq >= 0 ? way.seq : at::sequence_number::peek();
  c.makes = grad || !op.native;  // none of PyTorch's own ops turns grad mode on
  // Only one level of nested ops carries the number, so that a backward op finds that level.
  if (!c.canonical) {
    way.seq = -1;
  } else {
    if (C10_UNLIKELY(t.filled >= 0 && c.peeked > t.filled)) {
      c.place = way.place;
      adopt_nodes(t, c);
      if (way.seq < 0) way.seq = c.peeked - 1;
    }
    t.filled = c.peeked;
    if (way.seq >= 0) t.last_seq = way.seq;
  }
  way.forward_thread = t.record_function_id;
  if (C10_UNLIKELY(t.flags[2])) way.category = Category(t.flags[2]);
  // A callback that the engine runs after its nodes (DDP's last averages).
  else if (C10_UNLIKELY(!in_node && torch::autograd::get_current_graph_task_id() >= 0))
    way.category = kBackward;
  // The op makes no node. With a number it would count as another op's gradient.
  if (C10_UNLIKELY(way.category == kBackward)) way.seq = -1;
  return way;
}

// Returns the ``Way`` of an op that autograd node ``node`` runs: number and place of the op that made the
// node.
inline Way backward_way(Context& c, const torch::autograd::Node& node) {
  Way way;
  way.category = kBackward;
  int64_t number = int64_t(node.sequence_nr());
  if (number >= 0) {  // not 2⁶⁴−1, which AccumulateGrad and other nodes have that no op made
    way.forward_thread = node.thread_id();
    way.seq = number;
    Thread* maker = way.forward_thread < kMaxForwardThread
        ? global().by_forward_thread[way.forward_thread].load(std::memory_order_acquire)
        : nullptr;
    if (maker && maker->nodes) {
      NodeSlot& slot = maker->nodes[size_t(number) & (kNodes - 1)];
      if (slot.seq.load(std::memory_order_acquire) == number) {
        way.place = slot.place.load(std::memory_order_relaxed);
        int64_t op = slot.op.load(std::memory_order_relaxed);
        way.seq = op < 0 ? -1 : op & (kMaxSeq - 1);
        if (op >= 0) way.forward_thread = uint64_t(op >> kSeqBits);
      }
    }
  }
  if (g_creating.load(std::memory_order_relaxed)) {
    c.peeked = at::sequence_number::peek();
    c.makes = true;
  }
  return way;
}

APART std::unique_ptr<at::ObserverContext> begin(Thread& t, const at::RecordFunction& fn) {
  fetch(t);
  bool all_levels = g_all_levels.load(std::memory_order_relaxed);
  bool below = t.inside > 0;
  const OpSlot* found = find_op(t, fn);
  if (!found) return fn.scope() == at::RecordScope::USER_SCOPE ? begin_work(t, fn) : nullptr;
  const OpTraits& op = found->traits;
  if (!op.recorded) return nullptr;
  auto args = fn.inputs();
  // TorchScript's interpreter passes its whole stack; the arguments are at its top.
  if (args.size() > op.count) args = args.slice(args.size() - op.count);
  fetch(args);
  auto node = torch::autograd::get_current_node();
  if (!node) fetch_frames(t);
  const Kinds kinds(args);
  const auto local = c10::impl::tls_local_dispatch_key_set();
  using K = c10::DispatchKey;
  // Ops on the meta tensor within a fake tensor run with dispatch modes excluded.
  if (C10_UNLIKELY(kinds.traced || (kinds.meta && local.excluded_.has(K::Python)) ||
          (local.included_.has(K::Python) && tracing())))  // a dispatch mode on the stack includes this key
    return begin_silence(t, fn);

  bool canonical = !below && !kinds.transformed && !transparent(op, args, local);
  // A subclass of a tensor does the op's work by calling ops again: a DTensor on the part that is its rank's.
  bool outside = canonical && kinds.subclass && !local.excluded_.has(K::Python);
  canonical = canonical && !outside;
  if (!canonical && !outside && !all_levels) return nullptr;
  auto context = std::unique_ptr<Context>(new (t) Context);
  Context& c = *context;
  c.thread = &t;
  c.op = found->value;
  c.canonical = canonical;

  bool forward = !node || (g_creating.load(std::memory_order_relaxed) == 0 && c10::GradMode::is_enabled());
  Way way = forward ? forward_way(t, c, op, fn, node != nullptr) : backward_way(c, *node);
  if (op.communication) way.category = kCommunication;
  c.seq = way.seq;
  c.forward_thread = way.forward_thread;
  c.place = way.place;
  c.epoch = g_epoch.load(std::memory_order_relaxed);
  uint64_t key = signature(hash_arguments<true>(c.op, op, args), way.category, way.place);
  const CallSlot* call = find_call(t, key);
  bool told = call && c.epoch && call->epoch == c.epoch && !g_nvtx.load(std::memory_order_relaxed);
  int64_t number = told ? call->text : 0;
  Text* text = C10_LIKELY(told) ? nullptr : find_text(t, c, fn, args, way.category, key);
  if (c.canonical) ++t.inside;
  c.outer_place = t.place;
  c.outer_has_place = t.has_place;
  if (op.native && c.forward) {
    t.place = way.place;
    t.has_place = true;
  } else {
    t.has_place = false;
  }
  int64_t payload = -1;
  if (way.seq >= 0 && way.seq < kMaxSeq && way.forward_thread && way.forward_thread < kMaxForwardThread)
    payload = way.seq | int64_t(way.forward_thread) << kSeqBits;
  if (C10_LIKELY(told))
    record_push(t, c, number, payload);
  else
    push(t, c, text, payload);
  if (canonical && !all_levels) hush(t, c, fn);
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

// Returns an op's outputs in pieces: `` -> f32[2]``, `` -> (f32[2], i64[2])``.
std::vector<std::string> output_pieces(const Context& c, c10::ArrayRef<IValue> outputs) {
  std::vector<std::string> shown;
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
  return shown;
}

// Returns the text with outputs; writes the outputs' own text to ``result``, if given. Null where the op
// raised: it has no outputs, but the next such call may have some.
COLD Text* complete(Context& c, c10::ArrayRef<IValue> outputs, std::string* result) {
  if (outputs.empty() && c.op->returns > 0) return nullptr;
  Slow slow(*c.thread);
  Entry& entry = *c.entry;
  std::vector<std::string> shown = output_pieces(c, outputs);
  std::string device;
  for (const IValue& value : outputs) find_device(device, value);
  bool late = !entry.has_device && !device.empty();  // a factory: only the result has the device
  if (result) {
    auto told = shown;
    if (late) device_piece(told, device);
    *result = joined(told, shown.size(), kTextLimit - 3);  // as if preceded by "_()"
    result->erase(0, 1);
  }
  uint64_t key = 0;
  if (entry.dynamic) {
    Hasher hash{7};
    for (const auto& piece : shown) hash.add(piece);
    key = hash.state;
  }
  Global& g = global();
  std::lock_guard<std::mutex> guard(g.lock);
  if (!entry.dynamic && entry.kept && entry.known.load()) {  // the same call ended on another thread first
    Text* text = entry.pushed.load();
    if (c.epoch) announce(g, *text, c.epoch);
    return text;
  }
  Pieces pieces(entry.head.begin(), entry.head.end());
  pieces.insert(pieces.end(), shown.begin(), shown.end());
  pieces.insert(pieces.end(), entry.tail.begin(), entry.tail.begin() + entry.placed);
  size_t place = pieces.size();
  if (late) device_piece(pieces, device);
  pieces.insert(pieces.end(), entry.tail.begin() + entry.placed, entry.tail.end());
  if (entry.dynamic) {
    auto found = entry.by_result.find(key);
    if (found != entry.by_result.end()) {
      announce(g, *found->second, c.epoch);
      return found->second;
    }
  }
  Text* text = intern(g, entry, pieces, place);
  if (c.epoch) announce(g, *text, c.epoch);
  if (entry.dynamic) {
    if (entry.by_result.size() < size_t(kMaxVariants)) entry.by_result[key] = text;
  } else if (entry.kept) {
    entry.pushed.store(text, std::memory_order_release);
    entry.known.store(true, std::memory_order_release);
    for (KeptPieces* done : {&entry.head, &entry.tail}) KeptPieces(done->get_allocator()).swap(*done);
  }
  return text;
}

void finish(Thread& t, Context& c, const at::RecordFunction& fn, int64_t time) {
  if (&t != c.thread) return;  // another thread ends the op: the range stays open until the recording ends
  if (c.hushed >= 0) unhush(t, c);
  if (c.silent) {
    --t.silent;
    return;
  }
  if (c.canonical) --t.inside;
  t.place = c.outer_place;
  t.has_place = c.outer_has_place;
  int64_t pop = g_pop_code.load(std::memory_order_relaxed);
  if (c.wants) {
    std::string result;
    c10::ArrayRef<c10::IValue> results = fn.outputs();  // TorchScript: its whole stack, see ``begin``
    if (results.size() > size_t(c.op->returns)) results = results.slice(results.size() - c.op->returns);
    Text* text = complete(c, results, c.nvtx ? &result : nullptr);
    if (text) pop = kCompleteBase - text->id;
#ifdef OPSCOPE_NVTX
    if (c.nvtx && text) {
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
  if (c.makes) {  // after the pops: the first time on a thread takes milliseconds, outside any NVTX range
    int64_t peeked = at::sequence_number::peek();
    if (peeked > c.peeked) {
      bool own = c.seq >= 0;
      fill_nodes(t, c.peeked, peeked, c.place, own ? c.seq : t.last_seq,
          own ? c.forward_thread : t.record_function_id);
      t.filled = peeked;
    }
  }
  count(t.ops_seen);
}

// Counts a timed call's ns. A call of kLongestSample or longer was interrupted by another process: it counts
// once, and not as a sample for all calls.
void sample(Thread& t, int64_t took) { count(took < kLongestSample ? t.own_ns : t.slow_ns, took); }

inline bool unseen(const Thread& t) {
  return t.silent || (t.inside > 0 && !g_all_levels.load(std::memory_order_relaxed));
}

COLD std::unique_ptr<at::ObserverContext> begin_timed(Thread& t, const at::RecordFunction& fn) {
  int64_t slow = t.slow_ns.load(std::memory_order_relaxed), entered = now();
  std::unique_ptr<at::ObserverContext> context;
  if (!unseen(t)) context = begin(t, fn);
  if (context) static_cast<Context&>(*context).timed = true;
  sample(t, now() - entered - (t.slow_ns.load(std::memory_order_relaxed) - slow));
  count(t.timed);
  return context;
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& fn) {
  Thread& t = this_thread();
  if (t.busy) return nullptr;  // an op within our own call of Python, for example by a finalizer
  count(t.calls);
  bool timed = t.calls.load(std::memory_order_relaxed) % kTimedEvery == kTimedEvery / 2;
  if (!timed && unseen(t)) return nullptr;
  t.busy = true;
  std::unique_ptr<at::ObserverContext> context;
  try {
    context = C10_UNLIKELY(timed) ? begin_timed(t, fn) : begin(t, fn);
  } catch (...) {  // a fault of ours must never reach the user's program
    g_failures.fetch_add(1);
  }
  t.busy = false;
  return context;
}

void on_end(const at::RecordFunction& fn, at::ObserverContext* context) {
  if (!context) return;
  Context& c = *static_cast<Context*>(context);
  Thread& t = this_thread();
  fetch(t, c);
  int64_t time = now();  // the first slow action after the op
  int64_t slow = C10_UNLIKELY(c.timed) ? t.slow_ns.load(std::memory_order_relaxed) : 0;
  t.busy = true;
  try {
    finish(t, c, fn, time);
  } catch (...) {
    g_failures.fetch_add(1);
  }
  t.busy = false;
  if (C10_UNLIKELY(c.timed)) sample(t, now() - time - (t.slow_ns.load(std::memory_order_relaxed) - slow));
}

}  // namespace
