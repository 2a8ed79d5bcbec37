// The names of process groups and the kinds of reductions, for the texts of collectives.
//
// A library of its own, loaded where there is a process group: the headers that it needs take as long to
// compile as all of the observer (observer.cpp), which calls it by a pointer.

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <iterator>
#include <string>
#include <typeinfo>
#include <vector>

namespace {

// call.py: what each c10d::ReduceOp does, by its number, as functional collectives call it.
// tests/test_native_constants.py compares them.
const char* const kReductions[] = {
    "sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum"};

const std::string* reduction_name(int kind) {
  static const std::vector<std::string> names(std::begin(kReductions), std::end(kReductions));
  return kind >= 0 && size_t(kind) < names.size() ? &names[size_t(kind)] : nullptr;
}

}  // namespace

// Of a c10::IValue that is an object, as a std::string that lives as long as it; null for any other. A
// group written in Python is not asked: that would wait for the GIL.
extern "C" __attribute__((visibility("default"))) const void* opscope_object_name(const void* given) {
  const auto& value = *static_cast<const c10::IValue*>(given);
  static const c10::TypePtr group_type = c10::getCustomClassType<c10::intrusive_ptr<c10d::ProcessGroup>>();
  static const c10::TypePtr reduction_type = c10::getCustomClassType<c10::intrusive_ptr<c10d::ReduceOp>>();
  const auto type = value.toObjectRef().type();
  if (type == reduction_type) return reduction_name(value.toCustomClass<c10d::ReduceOp>()->op_);
  if (type != group_type) return nullptr;
  const auto group = value.toCustomClass<c10d::ProcessGroup>();
  if (typeid(*group) != typeid(c10d::ProcessGroup)) return nullptr;
  return &group->getGroupName();
}
