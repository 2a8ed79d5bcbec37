// Collectives as their backend runs them.

#pragma once

#include "reach.h"

namespace {

// The op of a work record of gloo, mpi or ucc; null for any other. gloo runs a collective on a thread of its
// own and records ``gloo:all_reduce`` there, from its begin until all ranks are done. By then the op that
// requested the collective has returned.
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
    // no schema: any number of inputs, all of them tensors
    slot->set_args(std::vector<ArgInfo>(64, tensor));
  }
  return slot.get();
}

std::unique_ptr<at::ObserverContext> begin_work(Thread& t, const at::RecordFunction& fn) {
  // Within an op the work begins on the caller's thread and ends on whichever thread waits for it: no range.
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
