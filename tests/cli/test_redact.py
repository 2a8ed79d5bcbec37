"""``opscope redact``: what a copy that may be sent still says, and what it does not."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import polars as pl
import pytest

import opscope as package
from opscope.cli import start as application
from opscope.core.tables.redacted import redacted
from opscope.core.tables.trace import Trace
from opscope.profile import Profile

OP = "aten::mm(f32[2,2], f32[2,2]) {key=token} @/home/me/work/train.py:42 < /home/me/main.py:7"
USER = "load https://me:hunter2@host/x?token=hunter2"


@pytest.fixture
def secret_profile(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [(0, 10, "opscope.torch", "forward", OP), (20, 30, "opscope.user", None, USER)]
    rows += [(40, 50, "opscope.torch", "layer", "net/layer1"), (60, 70, "other", None, None)]
    ranges = pl.DataFrame(
        rows, schema=["start", "end", "domain", "category", "text"], orient="row"
    ).with_columns(
        id=pl.int_range(pl.len()), process=0, thread=1, kind=pl.lit("pushpop"),
        attrs=pl.lit('{"file": "/home/me/x.py"}'),
    )  # fmt: skip
    trace = Trace.of(
        {
            "processes": pl.DataFrame(
                {"process": [0, 1], "pid": [1, 2], "host": ["box", "rack7"], "start_time": [5, 6]}
            ),
            "devices": pl.DataFrame({"process": [0], "device": [0], "uuid": ["GPU-1234"]}),
            "clocks": pl.DataFrame({"clock_domain": [0], "machine": ["boot-9"]}),
            "ranges": ranges,
            "notes": pl.DataFrame(
                {"severity": ["info"], "what": ["/data/secret/run.json: cut"], "how_many": [1]}
            ),
        },
        {"format": "test", "paths": ["/data/secret/run.json"], "parts": [{"host": "box"}]},
    )
    trace.origin["command"] = ["/usr/bin/python", "t.py", "--data=/data/x"]
    Profile(trace).save("run.opscope")
    return trace


def run(monkeypatch, *args):
    monkeypatch.setattr("sys.argv", ["opscope", *args])
    return application.run()


def everything(path):
    trace = package.load(path).trace
    return repr(trace.origin) + "".join(
        frame.select(pl.col(pl.String, pl.Categorical).cast(pl.String)).write_csv()
        for frame in trace.tables.values()
    )


def test_a_redacted_profile_has_no_secret_and_the_same_ops(secret_profile, monkeypatch, capsys):
    assert run(monkeypatch, "redact", "run.opscope") == 0
    assert "wrote run-redacted.opscope" in capsys.readouterr().err
    said = everything("run-redacted.opscope")
    assert "hunter2" not in said
    assert OP in said.replace('""', '"')
    assert "/usr/bin/python" in said
    assert "rack7" in said


def test_a_private_profile_says_neither_who_nor_where(secret_profile, monkeypatch):
    assert run(monkeypatch, "redact", "run.opscope", "-o", "out", "--private") == 0
    said = everything("out.opscope")
    for secret in ("hunter2", "/home", "/data", "box", "rack7", "GPU-1234", "boot-9", "t.py"):
        assert secret not in said, secret
    kept = package.load("out.opscope").trace
    assert kept["processes"]["host"].to_list() == ["host-1", "host-2"]
    assert "{key=token} @train.py:42 < main.py:7" in kept["ranges"]["text"].to_list()[0]
    assert kept["ranges"]["text"].to_list()[2:] == ["net/layer1", None]
    assert len(package.load("out.opscope").ops()) == len(package.load("run.opscope").ops())


def test_what_exists_is_replaced_only_where_asked(secret_profile, monkeypatch, capsys):
    assert run(monkeypatch, "redact", "run.opscope", "-o", "run") == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert run(monkeypatch, "redact", "run.opscope", "-o", "run", "--force") == 0
    assert "hunter2" not in everything("run.opscope")


def test_a_trace_without_a_secret_is_unchanged(secret_profile):
    plain = secret_profile.replace(ranges=secret_profile["ranges"].filter(pl.col("id") != 1))
    same = redacted(plain)
    for name in plain.present:
        assert same[name].equals(plain[name]), name


CAPTURED = """
import opscope
with opscope.capture("own.opscope"):
    with opscope.annotate("reading /srv/me/data.bin"):
        pass
"""
RUN = """
import opscope
with opscope.annotate("reading /srv/me/data.bin"):
    pass
"""


@pytest.mark.parametrize("how", ["own", "run"])
def test_a_private_recording_says_neither_who_nor_where(how, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "me.py"
    script.write_text(CAPTURED if how == "own" else RUN)
    python = [sys.executable, str(script), "argument"]
    if how == "own":
        environ = {**os.environ, "OPSCOPE_PRIVATE": "1"}
        subprocess.run(python, check=True, env=environ)
    else:
        options = ["run", "--private", "--no-report", "-o", "run", "--"]
        subprocess.run([sys.executable, "-m", "opscope", *options, *python], check=True)
    said = everything(f"{how}.opscope")
    assert "reading data.bin" in said
    for secret in ("/srv", str(tmp_path), socket.gethostname(), "argument"):
        assert secret not in said.replace("arguments left out", ""), secret
