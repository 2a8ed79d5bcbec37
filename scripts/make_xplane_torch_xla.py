"""Make a small XPlane file of a training under PyTorch/XLA, like tests/readers/torch_xla.xplane.pb.gz.

    PJRT_DEVICE=CPU XLA_IR_DEBUG=1 XLA_HLO_DEBUG=1 python scripts/make_xplane_torch_xla.py OUT.xplane.pb.gz

Needs torch and torch_xla of the same version; the two variables add scopes and lines to XLA's operations.
The recording begins within a step, so the file has a part of a step. In the file in tests, folders were
renamed to /home/user.
"""

import gzip
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch_xla.core.xla_model as xm
import torch_xla.debug.profiler as xp

PORT, MILLISECONDS = 9712, 300


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 4, 3)
        self.wide = torch.nn.Linear(4 * 26 * 26, 32)
        self.head = torch.nn.Linear(32, 10)

    def forward(self, x):
        x = torch.relu(self.conv(x)).flatten(1)
        return self.head(torch.relu(self.wide(x)))


def main():
    device = xm.xla_device()
    net = Net().to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    x, y = torch.randn(8, 1, 28, 28).to(device), torch.randint(0, 10, (8,)).to(device)

    def step(number):
        with xp.StepTrace("train", step_num=number):
            optimizer.zero_grad()
            with xp.Trace("forward"):
                loss = torch.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
        xm.wait_device_ops()

    for number in range(3):
        step(number)
    server = xp.start_server(PORT)  # it serves until it is garbage-collected
    with tempfile.TemporaryDirectory() as folder:
        tracing = threading.Thread(
            target=lambda: xp.trace(f"localhost:{PORT}", folder, duration_ms=MILLISECONDS)
        )
        tracing.start()
        while tracing.is_alive():
            number += 1
            step(number)
            time.sleep(0.05)
        (file,) = Path(folder).rglob("*.xplane.pb")
        with open(sys.argv[1], "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
            packed.write(file.read_bytes())
    del server


if __name__ == "__main__":
    main()
