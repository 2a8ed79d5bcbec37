"""Launch calls, the delay of what they launch, and short kernels."""

from __future__ import annotations

TITLE = "launch statistics"
#: The calls that HTA looks at.
CALLS = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync")


def ours(profile):
    """Return counts, and times in µs, of launches by the calls that HTA knows; then of all launches."""
    import numpy as np

    from opscope.core.analysis.device.device_work import work_on_devices
    from opscope.core.analysis.device.launch_delays import launches_of

    work = profile.of(work_on_devices)
    found = launches_of(work, work.device)
    names = profile.trace["calls"]["name"].gather(found.call).cast(str)
    known = names.is_in(CALLS).to_numpy()
    call, busy = found.returned - found.called, found.busy
    queued = np.maximum(found.start - found.returned, 0)
    figures = _figures(*(one[known] / 1e3 for one in (call, queued, busy)))
    if not known.all():
        figures["launches by other calls"] = int((~known).sum())
    return figures


def theirs(analysis):
    """Return the same of ``get_cuda_kernel_launch_stats``, which returns a row a launch."""
    frame = analysis.get_cuda_kernel_launch_stats(visualize=False)[0]
    return _figures(
        *(frame[name].to_numpy() for name in ("cpu_duration", "launch_delay", "gpu_duration"))
    )


def _figures(call, queued, busy):
    import numpy as np

    if not len(call):
        return {"launches": 0}
    found = {"launches": len(call), "short kernels": int((busy < call).sum())}
    for name, values in (("launch call", call), ("queued", queued), ("execution", busy)):
        found[f"{name}: total (µs)"] = float(values.sum())
        found[f"{name}: median (µs)"] = float(np.median(values))
        found[f"{name}: p99 (µs)"] = float(np.percentile(values, 99))
    return found


WHY = {
    "other calls": "HTA leaves out cuLaunchKernel (Triton's), HIP's calls and launches of CUDA graphs",
}
