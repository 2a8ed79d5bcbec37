"""Small programs of torch.nn for tests: name → a function that makes a program that is ready to run."""

from __future__ import annotations

import functools
import threading

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


def train(model, *inputs, optimizer=torch.optim.Adam, steps=2, loss=None, **options):
    stepper = optimizer(model.parameters(), **options)
    criterion = loss or Loss()

    def program():
        for _ in range(steps):
            stepper.zero_grad()
            criterion(model(*inputs)).backward()
            stepper.step()

    return program


class Loss(nn.Module):
    def forward(self, y):
        return y.square().sum()


class Recurrent(nn.Module):
    """A bidirectional GRU over sequences of different lengths: writes views in place."""

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(8, 16, batch_first=True, bidirectional=True)

    def forward(self, x):
        packed = nn.utils.rnn.pack_padded_sequence(x, [5, 3], batch_first=True)
        return nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0], batch_first=True)[0]


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.lstm = nn.LSTM(8, 8, 2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(8, 20)

    def forward(self, x):
        return self.head(self.lstm(self.embedding(x))[0])


class Experts(nn.Module):
    """A mixture of experts: the number of rows per expert depends on the data."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        rows = x.reshape(-1, 8)
        choice = self.gate(rows).argmax(-1)
        out = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            out[choice == number] = expert(rows[choice == number])
        return out + self.gate(rows).sum(-1, keepdim=True)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, 2, 1)
        self.norm = nn.BatchNorm2d(8)
        self.up = nn.ConvTranspose2d(8, 3, 2, 2)
        self.drop = nn.Dropout2d()

    def forward(self, x):
        small = F.interpolate(F.avg_pool2d(x, 2), scale_factor=2.0, mode="bilinear")
        return self.drop(self.up(F.silu(self.norm(self.down(x))))) + small


class VisionTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, 16))
        self.position = nn.Parameter(torch.zeros(1, 5, 16))
        layer = nn.TransformerEncoderLayer(
            16, 2, 32, batch_first=True, norm_first=True, activation="gelu"
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(tokens), -1, -1), tokens], 1) + self.position
        return self.head(self.encoder(tokens)[:, 0])


class Exponential(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp() * 2

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x.exp() * 2


def cnn():
    layers = (
        *(nn.Conv2d(3, 8, 3, padding="same"), nn.BatchNorm2d(8), nn.ReLU(True), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 8, 3, groups=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5)),
        nn.Linear(8, 4),
    )
    options = {"lr": 0.1, "momentum": 0.9, "nesterov": True}
    return train(
        nn.Sequential(*layers), torch.randn(2, 3, 12, 12), optimizer=torch.optim.SGD, **options
    )


def gan():
    maker = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.Linear(8, 6), nn.Tanh())
    judge = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    makers = torch.optim.AdamW(maker.parameters())
    judges = torch.optim.RMSprop(judge.parameters())
    real, yes, no = torch.randn(3, 6), torch.ones(3, 1), torch.zeros(3, 1)
    criterion = nn.BCEWithLogitsLoss()

    def program():
        for _ in range(2):
            noise = torch.randn(3, 4)
            judges.zero_grad()
            loss = criterion(judge(real), yes) + criterion(judge(maker(noise).detach()), no)
            loss.backward()
            judges.step()
            makers.zero_grad()
            criterion(judge(maker(noise)), yes).backward()
            makers.step()

    return program


def accumulation():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu")
    images, labels, criterion = torch.randn(2, 3, 8, 8), torch.tensor([1, 2]), nn.CrossEntropyLoss()

    def program():
        for _ in range(2):
            optimizer.zero_grad()
            for _ in range(2):
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = criterion(model(images), labels) / 2
                scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

    return program


def reinforcement():
    """Two actors in their own threads run the forward pass; the learner's thread runs the backward pass."""
    policy = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(policy.parameters())

    def act(logs):
        state = torch.randn(4)
        for _ in range(3):
            actions = torch.distributions.Categorical(logits=policy(state))
            logs.append(actions.log_prob(actions.sample()))
            state = state + torch.randn(4) * 0.1

    def program():
        logs = []
        for _ in range(2):
            actor = threading.Thread(target=act, args=(logs,))
            actor.start()
            actor.join()
        rewards = torch.arange(6.0)
        rewards = (rewards - rewards.mean()) / (rewards.std() + 1e-8)
        optimizer.zero_grad()
        (-(torch.stack(logs) * rewards)).sum().backward()
        optimizer.step()

    return program


def custom_function():
    linear = nn.Linear(4, 4)

    def program():
        Exponential.apply(linear(torch.ones(2, 4))).sum().backward()

    return program


def reentrant_checkpoint():
    block = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))
    x = torch.randn(2, 4, requires_grad=True)
    return lambda: checkpoint(block, x, use_reentrant=True).sum().backward()


def double_backward():
    linear = nn.Linear(3, 3)

    def program():
        x = torch.randn(2, 3, requires_grad=True)
        (slope,) = torch.autograd.grad(linear(x).tanh().sum(), x, create_graph=True)
        slope.square().sum().backward()

    return program


def inference():
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Softmax(-1)).eval()
    x = torch.randn(2, 4)

    def program():
        with torch.inference_mode():
            model(x)
        with torch.no_grad():
            model(x)

    return program


def numbers():
    """Scalars of every kind, views, dtypes, lists: everything that the text of a call may contain."""

    def program():
        x = torch.randn(4, 6)
        x * 2, x + 1e16, x - 123456789012, x + True, x / 1e-5, x * float("nan"), x + 1j, -x * 0.5
        x.t(), x[1:3, ::2].clone(), x.permute(1, 0).expand(2, 6, 4), x[:0].sum(), x.to(torch.int8)
        torch.full((2,), float("inf")), torch.arange(0, 1, 0.25), torch.tensor([1e-5, 1e20])
        torch.stack([torch.ones(3)] * 4), torch.cat([x, torch.zeros(1, 6)]).unique(), x.sum().item()
        torch.nonzero(x > 0), torch.sort(x), torch.topk(x, 2), torch.split(x, 2), torch.std_mean(x)
        torch.eye(3).to_sparse(), torch.fft.rfft(x), torch.einsum("ij,kj->ik", x, x)
        torch._foreach_add([torch.ones(2), torch.ones(2)], 1.5), torch.where(x > 0, x, 0.0)
        torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last).contiguous()
        torch.div(x, 3, rounding_mode="floor"), torch.linspace(0, 1, 3), x.masked_fill(x > 0, -1)
        torch.randperm(5), torch.randint(0, 3, (2,)), torch.randperm(3, dtype=torch.int32)
        torch.empty(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.complex64).conj() * 2

    return program


def numbers_that_vary():
    linear = nn.Linear(3, 3)
    optimizer = torch.optim.Adam(linear.parameters(), foreach=False)

    def program():
        for number in range(40):
            optimizer.zero_grad()
            linear(torch.ones(2, 3)).mul(number * 0.5).sum().backward()
            optimizer.step()

    return program


def views_in_place():
    def program():
        x = torch.randn(4, 6, requires_grad=True)
        y = x * 1
        y[1:3] += 2
        y[:, ::2].mul_(3.5)
        y.t().contiguous().sum().backward()

    return program


def layouts():
    """Tensors of every layout without strides, forward and backward."""
    dense = torch.eye(4)
    dense[0, 3] = 2
    kinds = (
        *(dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_csc()),
        *(dense.to_sparse_bsr((2, 2)), dense.to_sparse_bsc((2, 2))),
    )
    wide = torch.randn(4, 3)
    weight = torch.randn(4, 3, requires_grad=True)

    def program():
        for one in kinds:
            one * 2, one + one, one.t(), one.to_dense(), one.clone(), one.detach(), one.sum()
            (one.coalesce() if one.layout is torch.sparse_coo else one).values()
            if (
                one.layout is not torch.sparse_bsc
            ):  # PyTorch has no product of it with a matrix on its right
                one @ wide, torch.addmm(torch.ones(4, 3), one, wide), one @ torch.ones(4)
            if one.layout not in (torch.sparse_bsr, torch.sparse_bsc):
                wide.t() @ one, one @ one, dense + one
        for one in kinds[:2]:
            torch.sparse.mm(one, weight).sum().backward()
        dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_bsr((2, 2))
        F.embedding(torch.tensor([1, 2, 1]), weight, sparse=True).sum().backward()
        torch._foreach_mul([kinds[0], kinds[0]], 2.0), dense.to_mkldnn().relu().to_dense()

    return program


def stores_that_vary():
    """Sparse matrices of one size with an increasing number of stored elements."""

    def program():
        dense = torch.zeros(8, 8)
        for row in range(8):
            for column in range(5):
                dense[row, column] = 1
                one = dense.to_sparse()
                one @ dense, one.coalesce().values()

    return program


def losses():
    x = torch.randn(4, 5, requires_grad=True)
    classes = torch.randint(0, 5, (4,))

    def program():
        F.mse_loss(x, torch.zeros(4, 5)).backward()
        F.kl_div(x.log_softmax(1), torch.softmax(x, 1).detach(), reduction="batchmean").backward()
        F.smooth_l1_loss(x, torch.ones(4, 5)).backward()
        F.multi_margin_loss(x, classes).backward()
        F.cross_entropy(x, classes, label_smoothing=0.1).backward()

    return program


def loader():
    data = torch.utils.data.TensorDataset(torch.randn(8, 4), torch.randint(0, 3, (8,)))
    model = nn.Linear(4, 3)
    optimizer = torch.optim.Adagrad(model.parameters())

    def program():
        for x, y in torch.utils.data.DataLoader(data, 4):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    return program


def volumes():
    model = nn.Sequential(
        nn.Conv3d(1, 2, 3), nn.InstanceNorm3d(2), nn.GELU(), nn.ConvTranspose3d(2, 1, 3)
    )
    return train(model, torch.randn(1, 1, 5, 6, 7))


def norms():
    model = nn.Sequential(
        *(nn.Linear(8, 8), nn.GroupNorm(2, 8), nn.RMSNorm(8), nn.PReLU(), nn.Linear(8, 2), nn.GLU())
    )
    return train(model, torch.randn(3, 8), optimizer=torch.optim.Adamax)


PROGRAMS = {
    "CNN": cnn,
    "transformer": lambda: train(
        nn.Transformer(16, 2, 1, 1, 32, batch_first=True),
        torch.randn(2, 5, 16),
        torch.randn(2, 4, 16),
    ),
    "LSTM": lambda: train(Language(), torch.randint(0, 20, (2, 6)), optimizer=torch.optim.RMSprop),
    "GAN": gan,
    "GRU": lambda: train(Recurrent(), torch.randn(2, 5, 8)),
    "experts": lambda: train(Experts(), torch.randn(2, 5, 8)),
    "U-Net": lambda: train(UNet(), torch.randn(2, 3, 16, 16)),
    "ViT": lambda: train(VisionTransformer(), torch.randn(2, 3, 8, 8), optimizer=torch.optim.NAdam),
    "reinforcement": reinforcement,
    "accumulation": accumulation,
    "encoder": lambda: train(
        nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval(), torch.randn(2, 5, 16)
    ),
    "embedding": lambda: train(
        nn.Sequential(nn.Embedding(10, 8), nn.Flatten(), nn.Linear(40, 2)),
        torch.randint(0, 10, (2, 5)),
    ),
    "custom function": custom_function,
    "reentrant checkpoint": reentrant_checkpoint,
    "double backward": double_backward,
    "inference": inference,
    "numbers": numbers,
    "layouts": layouts,
    "stores that vary": stores_that_vary,
    "numbers that vary": numbers_that_vary,
    "views in place": views_in_place,
    "losses": losses,
    "loader": loader,
    "volumes": volumes,
    "norms": norms,
}
#: Models in which every op runs in a module.
TEN = tuple(PROGRAMS)[:10]


@functools.lru_cache(maxsize=1)
def warm_up() -> None:
    """Run every program once, so that PyTorch's one-time work is done before comparisons."""
    for make in PROGRAMS.values():
        make()()
