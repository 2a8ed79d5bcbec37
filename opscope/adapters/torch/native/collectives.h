// Collectives: the name of the process group of a call, and a call as its backend runs it.

#pragma once

#include "reach.h"

namespace {

// gloo runs a collective on a thread of its own and says there when it begins and when all ranks are
// done with it, as ``gloo:all_reduce``; the op that asked for it has long returned.
OpInfo* find_work(const at::RecordFunction& fn) {
  std::string name = fn.name();
  bool known = false;
  for (const char* backend : {"gloo:", "mpi:", "ucc:"}) known = known || starts_with(name, backend);
  if (!known || !plain_name(name)) return nullptr;
  Global& g = global();
  std::lock_guard<std::mutex> guard(g.lock);
  auto& slot = g.ops[name];
  if (!slot) {
    slot = std::make_unique<OpInfo>();
    slot->base = slot->name = name;
    slot->communication = true;
    ArgInfo tensor;
    tensor.kind = ArgInfo::kTensor;
    // it has no schema: its inputs are tensors, however many
    slot->set_args(std::vector<ArgInfo>(64, tensor));
  }
  return slot.get();
}

std::unique_ptr<at::ObserverContext> begin_work(Thread& t, const at::RecordFunction& fn) {
  // Within an op it begins on the thread of the caller, and whoever waits for it ends it: no range.
  if (!fn.isAsync() || t.inside || t.silent) return nullptr;
  OpInfo* op = find_work(fn);
  if (!op) return nullptr;
  auto context = std::unique_ptr<Context>(new (t) Context);
  Context& c = *context;
  c.thread = &t;
  c.op = op;
  c.canonical = true;
  c.place = &kNowhere;
  c.outer_place = t.place;
  c.outer_has_place = t.has_place;
  auto args = fn.inputs();
  uint64_t arguments = hash_arguments<true>(op, *op, args);
  uint64_t key = signature(arguments, kCommunication, &kNowhere);
  CallSlot* call = find_call(t, key);
  c.entry = call ? call->value : new_entry(t, c, *op, kCommunication, &kNowhere, args, key);
  c.epoch = g_epoch.load(std::memory_order_relaxed);
  ++t.inside;
  push(t, c, c.entry->pushed.load(std::memory_order_acquire), -1);
  return context;
}

}  // namespace
