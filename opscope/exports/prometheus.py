"""A run's totals in Prometheus' text format, for a file that its node exporter collects."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from opscope.profile import Profile

#: Column of ``summary()`` → the metric's name, its help text, and the divisor of its values.
_METRICS: Final = {
    "wall_time": ("wall_seconds", "time from the first to the last event", 1e9),
    "device_time": (
        "device_seconds",
        "time of kernels, copies and sets; without a GPU, of ops",
        1e9,
    ),
    "device_attributed_time": ("device_attributed_seconds", "device time that has an op", 1e9),
    "device_unattributed_time": ("device_unattributed_seconds", "device time without an op", 1e9),
    "device_busy": ("device_busy_seconds", "time in which anything ran on a device", 1e9),
    "kernel_time": ("kernel_seconds", "time of kernels; without a GPU, of ops", 1e9),
    "tensor_core_time": ("tensor_core_seconds", "time of kernels that use Tensor Cores", 1e9),
    "launched_share": ("launched_ratio", "share of the device time that has a launch record", 1),
    "flops_share": ("flops_known_ratio", "share of the launched device time with known FLOPs", 1),
    "steps": ("steps", "steps that ended", 1),
    "kernels": ("kernels", "kernels that ran", 1),
    "processes": ("processes", "processes", 1),
    "devices": ("devices", "devices that were used", 1),
}


def write(profile: Profile, out: BinaryIO) -> dict[str, int]:
    """Write the summary and the time by kind of op as gauges; an unknown value has no line."""
    row = profile.summary().row(0, named=True)
    line_count = 0
    for column, (name, help_text, scale) in _METRICS.items():
        value = row.get(column)
        if value is None:
            continue
        out.write(f"# HELP opscope_{name} {help_text}\n# TYPE opscope_{name} gauge\n".encode())
        out.write(f"opscope_{name} {value / scale if scale != 1 else value!r}\n".encode())
        line_count += 1
    kinds = profile.totals_by("kind").select("kind", "device_time").drop_nulls()
    kind_rows = kinds.to_dicts()
    if kind_rows:
        name = "opscope_kind_seconds"
        out.write(f"# HELP {name} device time by kind of op\n# TYPE {name} gauge\n".encode())
        for one in kind_rows:
            out.write(
                f'{name}{{kind="{_label(str(one["kind"]))}"}} {one["device_time"] / 1e9!r}\n'.encode()
            )
            line_count += 1
    return {"metrics": line_count}


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
