"""Complex numbers: the real operations of products, sums and quotients, counted by doing them."""

from __future__ import annotations

import itertools

import pytest

from opscope.core import perf
from opscope.core.rangetext import parse


class Real:
    """A number that counts what is done with it."""

    done = 0

    def __init__(self, value):
        self.value = value

    def _result(self, value):
        Real.done += 1
        return Real(value)

    def __add__(self, other):
        return self._result(self.value + other.value)

    def __sub__(self, other):
        return self._result(self.value - other.value)

    def __mul__(self, other):
        return self._result(self.value * other.value)

    def __truediv__(self, other):
        return self._result(self.value / other.value)


class Complex:
    """A complex number of two real ones."""

    def __init__(self, real, imaginary):
        self.real, self.imaginary = real, imaginary

    def __add__(self, other):
        return Complex(self.real + other.real, self.imaginary + other.imaginary)

    def __mul__(self, other):
        return Complex(
            self.real * other.real - self.imaginary * other.imaginary,
            self.real * other.imaginary + self.imaginary * other.real,
        )

    def __truediv__(self, other):
        size = other.real * other.real + other.imaginary * other.imaginary
        over = self * Complex(other.real, Real(-other.imaginary.value))
        return Complex(over.real / size, over.imaginary / size)


def counted(work):
    Real.done = 0
    work()
    return Real.done


def number(seed=1):
    return Complex(Real(seed + 0.5), Real(2.0 - seed / 7))


def product(m, n, k):
    """A multiply-add for each of m·n·k, onto a result that begins at 0."""
    for _ in itertools.product(range(m), range(n)):
        total = Complex(Real(0.0), Real(0.0))
        for step in range(k):
            total = total + number(step) * number(step + 1)


def flops(text):
    found, why = perf.cost(parse(text))
    assert found is not None, why
    return found


PRODUCTS = {
    "aten::mm(c64[3,4], c64[4,5]) -> c64[3,5]": (3, 5, 4),
    "aten::bmm(c128[2,3,4], c128[2,4,5]) -> c128[2,3,5]": (6, 5, 4),
    "aten::addmm(c64[5], c64[3,4], c64[4,5]) -> c64[3,5]": (3, 5, 4),
    "aten::linear(c64[3,4], c64[5,4], c64[5]) -> c64[3,5]": (3, 5, 4),
    "aten::matmul(c32[3,4], c32[4]) -> c32[3]": (3, 1, 4),
    "aten::einsum([c64[3,4], c64[4,5]]) -> c64[3,5] {equation=\"ik,kj->ij\"}": (3, 5, 4),
    "aten::convolution(c64[1,2,5], c64[3,2,2], _) -> c64[1,3,4] {stride=[1], padding=[0], "
    "dilation=[1], transposed=false, output_padding=[0], groups=1}": (3, 4, 4),
    "MatMul(c64[3,4], c64[4,5]) -> c64[3,5]": (3, 5, 4),
}  # fmt: skip


@pytest.mark.parametrize("text", PRODUCTS)
def test_a_complex_product_is_eight_operations_a_multiply_add(text):
    m, n, k = PRODUCTS[text]
    assert flops(text).matrix_flops == counted(lambda: product(m, n, k)) == 8 * m * n * k


def test_the_gradients_of_a_complex_product_are_as_large_as_it():
    call = parse("aten::mm(c64[3,4], c64[4,5]) -> c64[3,5]")
    both, why = perf.backward_costs(call)
    assert both is not None, why
    assert both.matrix_flops == 2 * flops("aten::mm(c64[3,4], c64[4,5]) -> c64[3,5]").matrix_flops


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("mul", lambda: number() * number(2)),
        ("add", lambda: number() + number(2)),
        ("div", lambda: number() / number(2)),
    ],
)
def test_elementwise_operations_count_the_real_ones(name, work):
    each = counted(work)
    assert flops(f"aten::{name}(c64[4,6], c64[4,6]) -> c64[4,6]").flops == 24 * each
    assert flops(f"aten::_foreach_{name}([c64[4,6]], [c64[4,6]]) -> [c64[4,6]]").flops == 24 * each
    assert flops(f"aten::{name}(f32[4,6], f32[4,6]) -> f32[4,6]").flops == 24


def test_a_sum_of_complex_numbers_adds_both_parts():
    found = flops("aten::sum(c64[4,6]) -> c64[6] {dim=[0]}")
    assert found.flops == 6 * counted(lambda: number() + number() + number() + number())
