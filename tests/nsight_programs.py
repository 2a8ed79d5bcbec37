"""The programs that run under Nsight Systems and under the recorder at the same time."""

from __future__ import annotations

_TRAIN = """
import os, sys, threading
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)

def made(width=16):
    model = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 4))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)

def train(model, optimizer, batches):
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

def batches(count=4):
    return [(torch.randn(4, 8), torch.randint(0, 4, (4,))) for _ in range(count)]
"""

EAGER = (
    _TRAIN
    + """
import opscope
net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 26 * 26, 10))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for _ in range(5):
    with opscope.annotate("batch"):
        x, y = torch.randn(4, 1, 28, 28), torch.randint(0, 10, (4,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
"""
)

COMPILED = (
    _TRAIN
    + """
model, optimizer = made()
model = torch.compile(model)
train(model, optimizer, batches())
"""
)

#: Workers of a data loader, which end by os._exit, and a forked child that ends normally.
FORKED = (
    _TRAIN
    + """
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, at):
        return torch.full((8,), float(at)).mul(2), at % 4

model, optimizer = made()
train(model, optimizer, DataLoader(Data(), batch_size=4, num_workers=2))
child = os.fork()
train(model, optimizer, batches(3))
if child:
    os.waitpid(child, 0)
"""
)

THREADS = (
    _TRAIN
    + """
def work():
    train(*made(32), batches())
threads = [threading.Thread(target=work) for _ in range(2)]
for one in threads:
    one.start()
for one in threads:
    one.join()
"""
)

#: For torchrun.
RANKS = (
    _TRAIN
    + """
import torch.distributed as dist
dist.init_process_group("gloo")
model, optimizer = made()
model = nn.parallel.DistributedDataParallel(model)
train(model, optimizer, batches())
dist.destroy_process_group()
"""
)

#: The texts of its optimizer's ops are over 4 KiB.
FOREACH = """
import torch
torch.set_num_threads(1)
parameters = [torch.nn.Parameter(torch.ones(1 + n % 97, 7)) for n in range(400)]
optimizer = torch.optim.AdamW(parameters, foreach=True)
for _ in range(2):
    for one in parameters:
        one.grad = torch.ones_like(one)
    optimizer.step()
"""

TENSORFLOW = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
tf.config.threading.set_inter_op_parallelism_threads(1)
tf.random.set_seed(0)
w = tf.Variable(tf.random.normal([8, 4]))
v = tf.Variable(tf.random.normal([8, 4]))

@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.nn.relu(tf.matmul(x, w)) ** 2)
    w.assign_sub(0.1 * tape.gradient(loss, w))
    return loss

for _ in range(3):
    x = tf.random.normal([16, 8])
    step(x)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.matmul(x, v) ** 2)
    v.assign_sub(0.1 * tape.gradient(loss, v))
"""

JAX = """
import jax, jax.numpy as jnp
import opscope

@jax.jit
def step(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)

w = jnp.ones((8, 4))
for _ in range(4):
    opscope.step()
    with opscope.annotate("batch"):
        x = jnp.ones((16, 8))
    w = step(w, x)
w.block_until_ready()
"""
