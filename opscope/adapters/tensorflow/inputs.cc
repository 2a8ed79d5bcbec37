// The shapes of an op's inputs as it runs, read by TensorFlow's own headers. Called by annotations.c.
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "tensorflow/core/framework/op_kernel.h"

namespace {

// The input, or null: absent, or a reference, which only ops of TensorFlow 1 have. The parameters are read
// rather than the context, whose own functions would be calls into TensorFlow.
const tensorflow::Tensor* tensor(const tensorflow::TensorValue& value) {
  return value.is_ref() ? nullptr : value.tensor;
}

uint64_t mixed(uint64_t sign, uint64_t more) {
  sign = (sign ^ more) * 0xff51afd7ed558ccdull;
  return sign ^ (sign >> 32);
}

// Sizes as a shape keeps them, by the names that TensorFlow's header gives to what derives from it:
// asking for one is a call, which takes as long as all of this. PLAIN_SIZES asks.
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

// A number that differs where the inputs' dtypes or sizes do; of an op with these
// OpKernelContext::Params.
extern "C" __attribute__((visibility("default"))) uint64_t opscope_inputs_sign(const void* of) {
  const auto& params = *static_cast<const tensorflow::OpKernelContext::Params*>(of);
  uint64_t sign = 1;
  for (const auto& value : params.inputs) {
    const auto* input = tensor(value);
    sign = mixed(sign, input ? Sizes::sign(input->shape()) + ((uint64_t)input->dtype() << 48) + 1 : 0);
  }
  return sign;
}

// ``net/MatMul:MatMul#shape=(float[64,800];float[800,10])#``, as TensorFlow's profiler writes it, into
// ``out``; 0 where it has no room or the parameters are not those of the op ``announced``.
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
