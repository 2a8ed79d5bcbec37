// Names process groups and the kinds of reductions, for the texts of collectives.
//
// A separate library, loaded once a process group exists: its headers take as long to compile as the whole
// observer (observer.cpp), which calls it through a pointer.

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <iterator>
#include <string>
#include <typeinfo>
#include <vector>

namespace {

// call.py: the c10d::ReduceOps by their number, under the names of functional collectives.
// tests/test_native_constants.py compares them.
const char* const kReductions[] = {
    "sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum"};

const std::string* reduction_name(int kind) {
  static const std::vector<std::string> names(std::begin(kReductions), std::end(kReductions));
  return kind >= 0 && size_t(kind) < names.size() ? &names[size_t(kind)] : nullptr;
}

}  // namespace

// Returns the name of a c10::IValue that is a process group or a reduction, as a std::string that lives as
// long as the object; null for other objects. A group written in Python gets no name: that would wait for the
// GIL.
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
