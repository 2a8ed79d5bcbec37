#!/usr/bin/env bash
# One would guess: `cost_analysis()` of a compiled JAX program gives the FLOPs of a run of it, at least where the
# loop's length is a constant.
# What happens: the body of a loop counts once, however often it runs: a scan over 10 products has the FLOPs of one.
# Complex products count as real ones, and a padded convolution counts no product with the padding.
# Seen with: jax 0.10.2 (CPU)
# Why it matters to a profiler: layers under `scan` are the usual way to write a transformer in JAX; utilisation from
# this figure is too low by the number of layers. Trip counts have to come from the program's text.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'jax[cpu]==0.10.2'
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import jax
import jax.numpy as jnp


def flops(function, *arguments):
    return jax.jit(function).lower(*arguments).compile().cost_analysis()["flops"]


x = jnp.ones((64, 64))
product = 2 * 64**3
rows = {
    "one product": (flops(lambda a: a @ a, x), product),
    "scan of 10 products": (
        flops(lambda a: jax.lax.scan(lambda c, _: (c @ a, None), a, None, length=10)[0], x),
        10 * product,
    ),
    "complex product": (flops(lambda a: a @ a, x.astype(jnp.complex64)), 4 * product),
    "3 x 3 convolution, padded": (
        flops(lambda a, b: jax.lax.conv(a, b, (1, 1), "SAME"), jnp.ones((1, 8, 16, 16)), jnp.ones((4, 8, 3, 3))),
        2 * 4 * 16 * 16 * 8 * 9,
    ),
}
print("jax", jax.__version__)
for name, (counted, by_hand) in rows.items():
    print(f"{name:26} counted {counted:9.0f}   usual count {by_hand:9}")
counted = {name: value for name, (value, _) in rows.items()}
assert counted["one product"] == product
assert counted["scan of 10 products"] < 1.01 * product
assert counted["complex product"] == product
assert counted["3 x 3 convolution, padded"] == 2 * 4 * 8 * 46 * 46, counted  # 46 of 3 * 16 taps a side lie within
PYTHON
