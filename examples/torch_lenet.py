"""Trains LeNet-5 for a few steps on images made here: an ordinary script, with no profiler in it."""

import torch
import torch.nn.functional as F
from torch import nn


class LeNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, images):
        x = F.max_pool2d(F.relu(self.conv1(images)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


def batches(count, size, device):
    """Blurred noise around a bright spot whose place is the label."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        labels = torch.randint(0, 10, (size,), generator=generator)
        images = torch.randn(size, 1, 28, 28, generator=generator)
        for image, label in zip(images, labels.tolist(), strict=True):
            row, column = divmod(label, 5)
            image[0, 4 + 12 * row : 12 + 12 * row, 5 * column : 5 * column + 6] += 3.0
        yield images.to(device), labels.to(device)


def main(steps=8, batch=32):
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = LeNet().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for images, labels in batches(steps, batch, device):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    print(f"LeNet on {device}: {steps} steps of {batch} images")
    print(f"loss {losses[0].item():.3f} -> {losses[-1].item():.3f}")


if __name__ == "__main__":
    main()
