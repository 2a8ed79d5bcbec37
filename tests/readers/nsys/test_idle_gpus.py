"""GPUs that a program saw and did not use, in DLProf's report of an export of Nsight Systems."""

from __future__ import annotations

import pytest

import opscope
from opscope.core.tables.trace import IDLE_GPUS
from opscope.reports import dlprof
from tests.readers.nsys.test_nsys_rows import kernel


def test_dlprofs_means_are_over_the_gpus_that_the_program_saw_also_idle_ones(nsys_file, ids, event):
    """Three GPUs: of 1,000 ns one computes for 400, one for 100, one for none."""
    gpus = [{"id": number, "cuDevice": number, "name": f"GPU {number}"} for number in range(3)]
    work = [kernel(100, 500, 1, ids), kernel(200, 300, 2, ids, deviceId=1)]
    tables = {"CUPTI_ACTIVITY_KIND_KERNEL": work, "NVTX_EVENTS": [event(0, 1_000, text="run")]}
    profile = opscope.load(nsys_file(TARGET_INFO_GPU=gpus, **tables))
    assert profile.trace["devices"]["device"].to_list() == [0, 1]
    sections = {section.title: section.frame for section in dlprof.tables(profile, "summary")}
    shares = sections["Devices"]["GPU Utilization %"].to_list()
    assert shares == pytest.approx([40, 10, 0])
    assert sections["Devices"]["GPU Name"].to_list() == ["GPU 0", "GPU 1", "GPU 2"]
    seen = [{"gpuId": number, "cudaId": number, "pid": 1} for number in range(2)]
    profile = opscope.load(nsys_file(TARGET_INFO_GPU=gpus, TARGET_INFO_CUDA_DEVICE=seen, **tables))
    assert IDLE_GPUS not in profile.trace.origin
