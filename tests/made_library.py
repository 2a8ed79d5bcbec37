"""A library of models, a trainer and a helper library, installed into a folder ``site-packages``."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

FILES = {
    # the library with the models
    "modelzoo/__init__.py": "",
    "modelzoo/bert.py": """
        import torch
        from einops.rearranging import twice

        class Layer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(4, 4)

            def forward(self, x):
                x = self.linear(x)
                x = twice(x)
                return x.tanh()
    """,
    "modelzoo/tfnet.py": """
        import tensorflow as tf

        def block(x, w):
            return tf.nn.relu(tf.matmul(x, w))
    """,
    "modelzoo/jaxnet.py": """
        import jax.numpy as jnp

        def block(w, x):
            return jnp.tanh(x @ w)
    """,
    # a helper library that models use
    "einops/__init__.py": "",
    "einops/rearranging.py": """
        def twice(x):
            return x + x
    """,
    # a trainer of any model: transformers without its models
    "transformers/__init__.py": "",
    "transformers/trainer.py": """
        class Trainer:
            def __init__(self, model, optimizer):
                self.model, self.optimizer = model, optimizer

            def train(self, x):
                loss = self.model(x).sum()
                loss.backward()
                self.optimizer.step()
                return loss.abs()
    """,
    "transformers/models/__init__.py": "",
    "transformers/models/gpt.py": """
        def block(x):
            return x.sigmoid()
    """,
}


def install(folder: Path, monkeypatch) -> Path:
    """Write the packages to ``folder/site-packages``, make them importable, and return that folder."""
    place = folder / "site-packages"
    for name, text in FILES.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    for name in [one for one in sys.modules if one.partition(".")[0] in {"modelzoo", "einops", "transformers"}]:  # fmt: skip
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(place))
    return place


def line(name: str, text: str) -> int:
    """Return the number of the first line of the file that contains ``text``."""
    lines = textwrap.dedent(FILES[name]).splitlines()
    return next(n for n, one in enumerate(lines, start=1) if text in one)
