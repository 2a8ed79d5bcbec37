// The shapes of an op's inputs as it runs, read by TensorFlow's own headers. Called by annotations.c.
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "tensorflow/core/framework/op_kernel.h"

namespace {

// The input, or null: absent, or a reference, which only ops of TensorFlow 1 have.
const tensorflow::Tensor *tensor(const tensorflow::OpKernelContext &context, int number) {
    if (!context.has_input(number) || context.input_is_ref(number)) return nullptr;
    return &context.input(number);
}

}  // namespace

// A number that differs where the inputs' dtypes or sizes do.
extern "C" __attribute__((visibility("default"))) uint64_t opscope_inputs_sign(const void *of) {
    const auto &context = *static_cast<const tensorflow::OpKernelContext *>(of);
    uint64_t sign = 1;
    for (int i = 0, many = context.num_inputs(); i < many; i++) {
        const auto *input = tensor(context, i);
        uint64_t one = 0;
        if (input) {
            one = 1 + input->dtype();
            for (int d = 0, rank = input->dims(); d < rank; d++)
                one = one * 0x9e3779b97f4a7c15ull + (uint64_t)input->dim_size(d) + 1;
        }
        sign = (sign ^ one) * 0xff51afd7ed558ccdull;
        sign ^= sign >> 32;
    }
    return sign;
}

// ``net/MatMul:MatMul#shape=(float[64,800];float[800,10])#``, as TensorFlow's profiler writes it, into
// ``out``; 0 where it has no room or the context is not that of the op ``announced``.
extern "C" __attribute__((visibility("default"))) int opscope_inputs_text(const void *of,
                                                                          const char *announced,
                                                                          char *out, int room) {
    const auto &context = *static_cast<const tensorflow::OpKernelContext *>(of);
    const std::string &name = context.op_kernel().name();
    if (std::strncmp(announced, name.c_str(), name.size()) || announced[name.size()] != ':') return 0;
    std::string text(announced);
    text += "#shape=(";
    for (int i = 0, many = context.num_inputs(); i < many; i++) {
        if (i) text += ';';
        const auto *input = tensor(context, i);
        if (!input || input->dtype() == tensorflow::DT_RESOURCE ||
            input->dtype() == tensorflow::DT_VARIANT)
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
