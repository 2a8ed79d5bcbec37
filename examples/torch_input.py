"""Trains a small CNN on windows of sensor readings that a DataLoader prepares: what the input costs.

--workers N prepares batches in N processes; --whole prepares a batch at a time instead of a window.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Windows(Dataset):
    """Windows of 4 sensors' readings, each prepared when it is asked for."""

    def __init__(self, count, prepared):
        self.readings = torch.randn(4, count + 64, generator=torch.Generator().manual_seed(0))
        self.count = count
        self.prepared = prepared

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        window = self.readings[:, index : index + 64]
        label = index % 10
        return (prepare(window[None])[0] if self.prepared else window), label


def prepare(windows):
    """Normalise each window, change its scale, add noise, drop a stretch; of one window or of many."""
    spread, middle = torch.std_mean(windows, dim=-1, keepdim=True)
    windows = (windows - middle) / (spread + 1e-6)
    windows = windows * torch.empty(len(windows), 1, 1).uniform_(0.8, 1.2)
    windows = windows + 0.02 * torch.randn_like(windows)
    start = torch.randint(0, 56, (len(windows), 1, 1))
    place = torch.arange(64)
    return windows.masked_fill((place >= start) & (place < start + 8), 0.0)


def main(steps=12, batch=256, workers=0, whole=False):
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(
        nn.Conv1d(4, 32, 5), nn.ReLU(), nn.MaxPool1d(4), nn.Flatten(), nn.Linear(480, 10)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = Windows(steps * batch, prepared=not whole)
    for windows, labels in DataLoader(data, batch, num_workers=workers):
        if whole:
            windows = prepare(windows)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(windows.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
    print(f"{steps} steps of {batch} windows, loss {loss.item():.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--whole", action="store_true")
    main(**vars(parser.parse_args()))
