// What does not change from call to call of one operator, found by the address of its name.

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

}  // namespace
