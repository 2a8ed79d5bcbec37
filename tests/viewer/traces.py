"""The real traces on which the server's answers are compared with the reports: unlike each other."""

TRACES = [
    "kineto/qwen1.5_0.5b_h100.json.gz",
    "kineto/ddp_rank3of8_a100_stacks.json.gz",
    "kineto/alexnet_cupti_counters_a100.json.gz",
    "kineto/resnet50_nw4_step_span1.pt.trace.json.gz",
    "nsys/fsdp_h100x2_2026.sqlite",
    "nsys/multiprocessing_nogpu_2020.sqlite",
    "nvprof/language_model.sqlite",
    "onnxruntime/resnet_inference_gemmini.json",
    "xplane/jax_conv_mi300.xplane.pb",
    "dlprof/nsys_profile.sqlite",
]
