// The properties of an operator that are the same in every call, found by the address of its name.

#pragma once

#include "text.h"

namespace {

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
  for (const char* prefix : kUnrecorded)
    if (starts_with(op->base, prefix)) op->recorded = false;
  for (const char* prefix : kCommunicating)
    if (starts_with(op->base, prefix)) op->communication = true;
  for (const char* prefix : kDynamic)
    if (starts_with(op->base, prefix)) op->dynamic = true;
  op->native = starts_with(op->base, "aten::");
  std::vector<ArgInfo> args;
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
    args.push_back(std::move(info));
  }
  op->set_args(std::move(args));
  op->returns = int(schema.returns().size());
  auto handle = c10::Dispatcher::singleton().findSchema(schema.operator_name());
  if (handle) {
    using K = c10::DispatchKey;
    bool explicitly = handle->hasKernelForDispatchKey(K::CompositeExplicitAutograd);
    op->composite = handle->hasKernelForDispatchKey(K::CompositeImplicitAutograd) && !explicitly &&
        !handle->hasKernelForDispatchKey(K::AutogradCPU);
    // A device's own kernel takes precedence over the decomposition.
    op->own_cpu = handle->hasKernelForDispatchKey(K::CPU);
    op->own_cuda = handle->hasKernelForDispatchKey(K::CUDA);
    op->autocast_cpu = handle->hasKernelForDispatchKey(K::AutocastCPU);
    op->autocast_cuda = handle->hasKernelForDispatchKey(K::AutocastCUDA);
    for (auto tag : handle->getTags())
      if (tag == at::Tag::dynamic_output_shape || tag == at::Tag::data_dependent_output) op->dynamic = true;
  }
  Global& g = global();
  std::lock_guard<std::mutex> guard(g.lock);
  auto& slot = g.ops[full];
  if (slot && !slot->same(*op)) g.former_ops.push_back(std::move(slot));  // the program redefined the op
  if (!slot) slot = std::move(op);
  return slot.get();
}

// Counts removed operators (``torch.library``): another operator may reuse the address of the name.
struct Gone final : c10::OpRegistrationListener {
  void onOperatorRegistered(const c10::OperatorHandle&) override {}
  void onOperatorDeregistered(const c10::OperatorHandle&) override { g_names.fetch_add(1); }
};

void watch_names() {  // permanently: the handle is never destroyed
  new auto(c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Gone>()));
}

COLD OpSlot* new_op(Thread& t, const at::RecordFunction& fn, uint64_t key) {
  auto schema = fn.operator_schema();
  if (!schema) return nullptr;
  OpInfo* op = make_op(*schema);
  OpSlot& slot = t.ops.insert(key, op);
  slot.traits = *op;
  return &slot;
}

// Returns the op of this call, valid until the next ``find_op``; null for a call of no operator with a
// schema.
inline const OpSlot* find_op(Thread& t, const at::RecordFunction& fn) {
  // The name is the schema's own string and lives as long as the operator: one address, one overload.
  uint64_t key = uint64_t(fn.name()) * 0x9E3779B97F4A7C15ull;  // an odd factor: distinct keys stay distinct
  int64_t names = g_names.load(std::memory_order_relaxed);
  if (C10_UNLIKELY(t.names != names || t.ops.count > kMaxEntries)) {
    t.names = names;
    t.ops.clear();
  }
  const OpSlot* found = t.ops.slot(key);
  return C10_LIKELY(found != nullptr) ? found : new_op(t, fn, key);
}

}  // namespace
