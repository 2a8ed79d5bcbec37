"""Measure how long a server's thread stands still when `opscope attach` ends, and when `--last` writes a profile.

Usage: python benchmarks/server_pause.py [--python PYTHON] [--seconds 3] [--requests 16]

PYTHON has torch and transformers. The server is transformers' continuous batching on a small model of random
weights, with as many requests at a time as are given, each followed by another. It notes when each of its steps
began, so the pause is the longest time between two steps, beside their median and the longest before anybody asked.
Three runs: nothing asked, `opscope attach --duration`, and `opscope run --last 5s` with `opscope attach --dump`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SERVER = """
import json, os, sys, time
import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.generation.continuous_batching import continuous_api

asked, out = int(sys.argv[1]), sys.argv[2]
torch.manual_seed(0)
torch.set_num_threads(1)
config = LlamaConfig(hidden_size=128, intermediate_size=256, num_hidden_layers=4, num_attention_heads=4,
                     num_key_value_heads=2, vocab_size=256, max_position_embeddings=1024)
model = LlamaForCausalLM(config).eval()
options = GenerationConfig(max_new_tokens=64, do_sample=False, eos_token_id=-1, pad_token_id=0)
blocks = ContinuousBatchingConfig(num_blocks=512, page_size=16, max_batch_tokens=128)
begun = []
step = continuous_api.ContinuousBatchProcessor._generation_step
def noted(*args, **kwargs):
    begun.append(time.time())
    return step(*args, **kwargs)
continuous_api.ContinuousBatchProcessor._generation_step = noted
manager = model.init_continuous_batching(generation_config=options, continuous_batching_config=blocks)
manager.start()
def ask():
    manager.add_request([1 + n % 200 for n in range(32)], max_new_tokens=64)
for _ in range(asked):
    ask()
print("ready", flush=True)
while not os.path.exists(out + ".stop"):
    if manager.get_result(timeout=0.05) is not None:
        ask()
manager.stop(block=True, hard_stop=True)
with open(out, "w") as file:
    json.dump(begun, file)
"""


def served(
    options: argparse.Namespace, run: list[str], asking: list[str]
) -> tuple[float, float, float]:
    """Return median and longest time between steps (ms) before anybody asks, and the longest from then on."""
    with tempfile.TemporaryDirectory() as folder:
        program, out = Path(folder, "server.py"), Path(folder, "steps.json")
        program.write_text(SERVER)
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        words = [options.python, *run, str(program), str(options.requests), str(out)]
        server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env, cwd=folder)
        assert server.stdout is not None
        while server.stdout.readline().strip() != "ready":
            if server.poll() is not None:
                raise SystemExit(f"the server ended: {server.returncode}")
        time.sleep(options.seconds)
        asked = time.time()
        if asking:
            opscope = [options.python, "-m", "opscope", "attach", *asking, str(server.pid)]
            subprocess.run(opscope, check=True, env=env, cwd=folder, stdout=subprocess.DEVNULL)
        time.sleep(options.seconds)
        Path(f"{out}.stop").touch()
        server.communicate(timeout=300)
        begun = json.loads(out.read_text())
    gaps = [(then, 1e3 * (then - before)) for before, then in itertools.pairwise(begun)]
    before = [gap for then, gap in gaps if asked - options.seconds < then < asked]
    after = [(then - asked, gap) for then, gap in gaps if then >= asked]
    at, longest = max(after, key=lambda one: one[1])
    print(f"   longest {longest:.1f} ms, {at:.2f} s after it was asked; then "
          f"{', '.join(f'{gap:.1f} at {at:.2f} s' for at, gap in sorted(after, key=lambda one: -one[1])[1:4])}")  # fmt: skip
    return statistics.median(before), max(before), longest


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--requests", type=int, default=16)
    options = parser.parse_args()
    run = ["-m", "opscope", "run", "--no-report"]
    for title, how, asking in (
        ("nothing asked", [*run, "--attachable"], []),
        ("opscope attach --duration 2", [*run, "--attachable"], ["--duration", "2", "--no-report"]),
        ("opscope run --last 5s, opscope attach --dump", [*run, "--last", "5s", "--attachable"],
         ["--dump", "--no-report"]),
    ):  # fmt: skip
        print(title)
        median, before, after = served(options, how, asking)
        print(
            f"   steps of {median:.1f} ms (median), {before:.1f} ms at most before: pause {after:.1f} ms"
        )


if __name__ == "__main__":
    main()
