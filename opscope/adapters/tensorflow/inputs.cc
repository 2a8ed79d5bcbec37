// Reads the shapes of an op's inputs as it runs, with TensorFlow's own headers. Called by annotations.c.
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "tensorflow/core/framework/op_kernel.h"

namespace {

// Return the input, or null if it is absent or a reference, which only TensorFlow 1 ops have. This reads the
// parameters rather than the context, whose functions would be calls into TensorFlow.
const tensorflow::Tensor* tensor(const tensorflow::TensorValue& value) {
  return value.is_ref() ? nullptr : value.tensor;
}

uint64_t mixed(uint64_t sign, uint64_t more) {
  sign = (sign ^ more) * 0xff51afd7ed558ccdull;
  return sign ^ (sign >> 32);
}

// Reads sizes where a shape stores them, through names that TensorFlow's header gives to derived classes.
// dim_size is a call that takes as long as all the rest here; with PLAIN_SIZES it is always used.
struct Sizes : tensorflow::TensorShape {
  static uint64_t sign(const tensorflow::TensorShape& of) {
    const auto& shape = static_cast<const Sizes&>(of);
    const int rank = shape.dims();
    uint64_t sign = rank;
#ifndef PLAIN_SIZES
    if (shape.tag() == REP16) {
      for (int d = 0; d < rank; d++) sign = mixed(sign, shape.as16()->dims_[d]);
      return sign;
    }
#endif
    for (int d = 0; d < rank; d++) sign = mixed(sign, (uint64_t)shape.dim_size(d));
    return sign;
  }
};

}  // namespace

// Return a hash of the inputs' dtypes and sizes. ``of`` is the op's OpKernelContext::Params.
extern "C" __attribute__((visibility("default"))) uint64_t opscope_inputs_sign(const void* of) {
  const auto& params = *static_cast<const tensorflow::OpKernelContext::Params*>(of);
  uint64_t sign = 1;
  for (const auto& value : params.inputs) {
    const auto* input = tensor(value);
    sign = mixed(sign, input ? Sizes::sign(input->shape()) + ((uint64_t)input->dtype() << 48) + 1 : 0);
  }
  return sign;
}

// Write the op's text with its inputs' shapes into ``out``, in the form of TensorFlow's profiler:
// ``net/MatMul:MatMul#shape=(float[64,800];float[800,10])#``. Return 0 if ``room`` (bytes) is too small or
// the parameters do not belong to the op ``announced``, else 1.
extern "C" __attribute__((visibility("default"))) int opscope_inputs_text(
    const void* of, const char* announced, char* out, int room) {
  const auto& params = *static_cast<const tensorflow::OpKernelContext::Params*>(of);
  const std::string& name = params.op_kernel->name();
  if (std::strncmp(announced, name.c_str(), name.size()) || announced[name.size()] != ':') return 0;
  std::string text(announced);
  text += "#shape=(";
  for (size_t i = 0; i < params.inputs.size(); i++) {
    if (i) text += ';';
    const auto* input = tensor(params.inputs[i]);
    if (!input || input->dtype() == tensorflow::DT_RESOURCE || input->dtype() == tensorflow::DT_VARIANT)
      continue;
    text += tensorflow::DataTypeString(input->dtype());
    text += '[';
    for (int d = 0; d < input->dims(); d++) {
      if (d) text += ',';
      text += std::to_string(input->dim_size(d));
    }
    text += ']';
  }
  text += ")#";
  if ((int)text.size() >= room) return 0;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return 1;
}
