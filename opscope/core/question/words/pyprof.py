"""The words that only PyProf's table uses."""

from __future__ import annotations

BY_UNIT = {
    "number": {
        "idx": "number of the kernel in the whole profile, from 1, in the order of their starts",
        "tid": "the system's number of the launching thread, or the trace's if it has no other",
        "sub": "number of kernels with the same op and sequence number just before this one on its thread",
    },
    "text": {
        "altseq": "other sequence numbers around the launch, comma-separated",
        "kernel": "the kernel's own name, without template arguments",
        "trace": "the user's source lines of the call, outermost first, comma-separated",
        "dir": "fprop, or bprop inside an autograd node; null for a kernel without an op",
        "mod": "the Python module or class of the call, or the op's namespace; na if not known",
        "tc": "Tensor Cores: 1 used, 0 not used though the op is a product, - not a product, na not known",
    },
    "ns": {"sil": "the kernel's duration"},
}
