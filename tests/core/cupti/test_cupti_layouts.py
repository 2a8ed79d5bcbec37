"""The layouts of CUPTI's records are those of its headers: C programs compiled with them filled the records."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from opscope.core.cupti import calls, kinds, layouts
from opscope.core.cupti.layouts import UnknownVersion
from opscope.core.cupti.walk import chosen, records, taken, walk

ROOT = Path(__file__).resolve().parents[3]
MADE = json.loads(gzip.decompress(Path(__file__).with_name("records.json.gz").read_bytes()))


def layout_of(cuda, version):
    (found,) = [one for one in layouts.candidates(version) if cuda in one.cuda]
    return found


def compare(made):
    """Assert that every field of every record is decoded as the C program told it."""
    content = base64.b64decode(made["bytes"])
    layout = layout_of(made["cuda"], made["version"])
    walked = walk(content, layout)
    assert walked.unread == 0
    assert walked.kinds.tolist() == [kind for kind, _ in made["records"]]
    found = taken(content, walked, layout)
    seen = dict.fromkeys(found, 0)
    compared = 0
    for kind, fields in made["records"]:
        row = found[kind][seen[kind]]
        seen[kind] += 1
        assert set(fields) == set(row.dtype.names)
        for name, value in fields.items():
            assert np.asarray(row[name]).tobytes().hex() == value, (kind, name)
            compared += 1
    return compared


@pytest.mark.parametrize("made", MADE, ids=lambda made: made["release"])
def test_every_field_of_every_kind_is_read_as_a_c_program_with_the_headers_wrote_it(made):
    assert compare(made) > 500


def test_the_records_of_each_release_that_changed_one_are_compared():
    changed = []
    for version, cuda in layouts.known():
        layout = layout_of(cuda, version)
        used = {kind: (dtype, int(layout.slots[kind])) for kind, dtype in layout.dtypes.items()}
        if not changed or changed[-1] != used:
            changed.append(used)
    assert len(MADE) == len(changed) == 16


@pytest.mark.parametrize("made", MADE, ids=lambda made: made["release"])
def test_a_kernels_name_is_the_only_text_of_its_record(made):
    layout = layout_of(made["cuda"], made["version"])
    for kind in (kinds.KERNEL, kinds.CONCURRENT_KERNEL):
        assert layouts.strings(kind) == ("name",)
        assert layout.dtypes[kind].fields["name"][0] == np.dtype("<u8")


def test_one_number_is_of_three_releases_and_the_records_tell_which():
    for made in MADE:
        if made["version"] == 18:
            content = base64.b64decode(made["bytes"])
            (other,) = [one for one in layouts.candidates(18) if made["cuda"] not in one.cuda]
            layout = chosen(18, [plausible(content, layout_of(made["cuda"], 18))])
            assert made["cuda"] in layout.cuda
            assert layout.dtypes[kinds.KERNEL].itemsize != other.dtypes[kinds.KERNEL].itemsize


def plausible(content, layout):
    """The content with times and sizes as records have them: the C program counted bytes."""
    found = bytearray(content)
    walked = walk(content, layout)
    for place, kind in zip(walked.places.tolist(), walked.kinds.tolist(), strict=True):
        row = np.frombuffer(found, layout.dtypes[kind], 1, place * 8)
        for name, value in (("start", 1 << 60), ("end", (1 << 60) + 5), ("timestamp", 1 << 60)):
            if name in row.dtype.names:
                row[name] = value
    return bytes(found)


def test_a_version_older_than_all_known_is_refused_by_name():
    with pytest.raises(UnknownVersion, match="version 12 is older"):
        layouts.of(12)


def test_a_newer_version_has_the_newest_layout_where_its_records_fit():
    made = MADE[-1]
    layout = layouts.candidates(made["version"])[0]
    content = plausible(base64.b64decode(made["bytes"]), layout)
    newer = made["version"] + 100
    assert not layouts.candidates(newer)[0].exact
    assert chosen(newer, [content]).dtypes == layout.dtypes
    found = {kind: len(rows) for kind, rows in records(content, newer).items()}
    assert found == dict(Counter(kind for kind, _ in made["records"]))


@pytest.mark.parametrize("grown", [kinds.CONCURRENT_KERNEL, kinds.RUNTIME, kinds.MEMCPY])
def test_a_newer_version_whose_records_have_grown_is_refused_by_name(grown):
    made = MADE[-1]
    layout = layouts.candidates(made["version"])[0]
    content = plausible(base64.b64decode(made["bytes"]), layout)
    walked = walk(content, layout)
    pieces = []
    for place, kind in zip(walked.places.tolist(), walked.kinds.tolist(), strict=True):
        pieces.append(content[place * 8 : (place + int(layout.slots[kind])) * 8])
        if kind == grown:
            pieces.append(bytes(8))
    with pytest.raises(UnknownVersion, match=r"version 150000 .* CUDA 13\.5"):
        chosen(150000, [b"".join(pieces)])


def test_the_sizes_that_cupti_tells_decide_between_layouts():
    old, new = (layout_of(cuda, 18) for cuda in ("11.8", "12.0"))
    for layout in (old, new):
        sizes = {kinds.CONCURRENT_KERNEL: layout.dtypes[kinds.CONCURRENT_KERNEL].itemsize}
        assert chosen(18, [], sizes).cuda == layout.cuda
    with pytest.raises(UnknownVersion, match="version 18 "):
        chosen(18, [], {kinds.CONCURRENT_KERNEL: 256})


def test_a_version_that_writes_an_older_releases_records_is_read_by_those():
    """As the number says 13.5, and the records are 12.8's: told by CUPTI's sizes, and by the records alone."""
    (made,) = [one for one in MADE if one["cuda"] == "12.8"]
    old = layout_of("12.8", made["version"])
    content = plausible(base64.b64decode(made["bytes"]), old)
    sizes = {kind: int(old.slots[kind]) * 8 for kind in old.dtypes}
    for layout in (chosen(130500, [content]), chosen(130500, [content], sizes)):
        for kind, dtype in old.dtypes.items():
            # 13.0 gave bytes that were padding a field
            assert dtype.fields.items() <= layout.dtypes[kind].fields.items()
            assert dtype.itemsize == layout.dtypes[kind].itemsize
        assert walk(content, layout).unread == 0


def test_damaged_records_are_read_by_the_versions_own_layout():
    content = np.uint32(250).tobytes() + bytes(800)
    assert chosen(130500, [content]).dtypes == layouts.candidates(130500)[0].dtypes


def test_records_of_a_kind_without_a_layout_are_passed_over_where_cupti_tells_their_size():
    layout = layouts.candidates(130500)[0]
    one = np.zeros(1, layout.dtypes[kinds.RUNTIME])
    one["kind"] = kinds.RUNTIME
    content = one.tobytes() + np.uint32(77).tobytes() + bytes(44) + one.tobytes()
    assert walk(content, layout).unknown == 77
    walked = walk(content, chosen(130500, [content], {77: 48}))
    assert (walked.kinds.tolist(), walked.unread) == ([5, 77, 5], 0)


def test_calls_have_the_names_of_their_version():
    assert calls.names(kinds.RUNTIME, 28)[211] == "cudaLaunchKernel_v7000"
    assert calls.names(kinds.DRIVER, 28)[307] == "cuLaunchKernel"
    assert calls.names(kinds.RUNTIME, 28)[393] == "cudaSignalExternalSemaphoresAsync_v2_v11020"
    assert calls.names(kinds.RUNTIME, 130000)[393] == "cudaSignalExternalSemaphoresAsync_v11020"
    assert calls.names(kinds.RUNTIME, 28)[0] == "cbid_0"


@pytest.mark.slow
@pytest.mark.parametrize(
    "package", ["nvidia-cuda-cupti-cu11", "nvidia-cuda-cupti-cu12", "nvidia-cuda-cupti"]
)
def test_the_headers_of_the_wheels_say_what_is_committed(package, tmp_path, monkeypatch):
    """Downloads 20 to 80 MB."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import make_cupti_layouts
    import make_cupti_records

    versions = make_cupti_records.RELEASES[package]
    for version in {versions[0], versions[-1]}:
        try:
            paths = make_cupti_layouts.includes(tmp_path, package, version, download=True)
        except (SystemExit, OSError, ValueError, RuntimeError) as error:
            pytest.skip(f"the wheels cannot be had: {error}")
        made = json.loads(json.dumps(make_cupti_records.filled(paths, version)))
        assert made in MADE
        compare(made)
        for kind in (kinds.RUNTIME, kinds.DRIVER):
            names = calls.names(kind, made["version"])
            side = "runtime" if kind == kinds.RUNTIME else "driver"
            for number, name in make_cupti_layouts.calls(paths, side).items():
                if not make_cupti_layouts.UNNAMED.fullmatch(name):
                    assert names[number] == name
    sys.modules.pop("make_cupti_layouts", None)
    sys.modules.pop("make_cupti_records", None)
