"""LeNet in PaddlePaddle on images made here: ``opscope run -- python train.py``."""

import paddle
from paddle import nn


class LeNet(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2D(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2D(6, 16, 5)
        self.pool = nn.MaxPool2D(2)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 10)

    def forward(self, images):
        x = self.pool(nn.functional.relu(self.conv1(images)))
        x = self.pool(nn.functional.relu(self.conv2(x)))
        x = nn.functional.relu(self.fc1(paddle.flatten(x, 1)))
        return self.fc2(x)


def train(steps=8, batch=32):
    """Train for some steps, and return the losses."""
    paddle.seed(0)
    net = LeNet()
    optimizer = paddle.optimizer.Adam(0.001, parameters=net.parameters())
    images = paddle.randn([batch, 1, 28, 28])
    labels = paddle.randint(0, 10, [batch])
    losses = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))
    return losses


if __name__ == "__main__":
    losses = train()
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
