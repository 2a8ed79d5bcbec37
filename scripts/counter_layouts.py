"""Compare the structures of ``backends/cupti_counters/calls.py`` with CUPTI's headers, by the C compiler.

    python scripts/counter_layouts.py CUPTI_INCLUDE CUDA_INCLUDE

CUPTI_INCLUDE has cupti_range_profiler.h (CUDA 12.6 or later), CUDA_INCLUDE cuda.h. It prints each field whose
offset or size differs, and ends with 1 if one does. Fields that later versions append are not ours.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from opscope.backends.cupti_counters import calls

_HEADERS = ("cupti_profiler_target.h", "cupti_profiler_host.h", "cupti_range_profiler.h",
            "cupti_pmsampling.h", "cupti_target.h")  # fmt: skip
#: The names of the structures follow from the calls', but for these.
_NAMED = {
    "cuptiRangeProfilerCounterDataImageInitialize": "CUpti_RangeProfiler_CounterDataImage_Initialize_Params",
    "cuptiRangeProfilerCounterDataGetRangeInfo": "CUpti_RangeProfiler_CounterData_GetRangeInfo_Params",
    "cuptiPmSamplingCounterDataImageInitialize": "CUpti_PmSampling_CounterDataImage_Initialize_Params",
    "cuptiPmSamplingCounterDataGetSampleInfo": "CUpti_PmSampling_CounterData_GetSampleInfo_Params",
    "cuptiDeviceGetChipName": "CUpti_Device_GetChipName_Params",
}
_PREFIXES = ("ProfilerHost", "RangeProfiler", "PmSampling", "Profiler")


def struct(call: str) -> str:
    """Return the name of a call's structure in the headers."""
    if call in _NAMED:
        return _NAMED[call]
    bare = call.removeprefix("cupti")
    prefix = next(one for one in _PREFIXES if bare.startswith(one))
    words = {"ProfilerHost": "Profiler_Host"}.get(prefix, prefix)
    return f"CUpti_{words}_{bare.removeprefix(prefix)}_Params"


def main() -> int:
    """Compile a program that prints the headers' offsets, and compare."""
    includes = [f"-I{one}" for one in sys.argv[1:]]
    every = dict.fromkeys((*calls.FOR_RANGES, *calls.FOR_SAMPLES))
    lines = []
    for params in every:
        name = struct(params.CALL)
        for field, _ in params._fields_:
            if field == "unused":
                continue
            lines.append(f'printf("{params.CALL} {field} %zu %zu\\n", offsetof({name}, {field}),'
                         f" sizeof((({name}*)0)->{field}));")  # fmt: skip
        lines.append(f'printf("{params.CALL} = %zu 0\\n", (size_t){name}_STRUCT_SIZE);')
    heads = "".join(f"#include <{one}>\n" for one in _HEADERS)
    source = (
        f"#include <stdio.h>\n#include <stddef.h>\n{heads}int main(void) {{ {' '.join(lines)} }}\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "offsets"
        build = ["g++", "-x", "c++", "-", "-o", str(program), *includes]
        subprocess.run(build, input=source, text=True, check=True)
        out = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    wrong, ours = 0, {one.CALL: one for one in every}
    for call, field, offset, size in map(str.split, out.splitlines()):
        params = ours[call]
        if field == "=":
            if params.struct_size() > int(offset):
                wrong += 1
                print(f"{call}: {params.struct_size()} bytes, the header has {offset}")
            continue
        mine = getattr(params, field)
        if (mine.offset, mine.size) != (int(offset), int(size)):
            wrong += 1
            print(f"{call}.{field}: {mine.offset}, {mine.size}; the header has {offset}, {size}")
    print(f"{len(ours)} structures, {wrong} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
