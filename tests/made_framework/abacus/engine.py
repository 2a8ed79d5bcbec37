"""Arrays, and the single function that runs every op."""


class Array:
    """A row of numbers, or a table."""

    def __init__(self, values, shape=None):
        self.values = list(values)
        self.shape = (len(self.values),) if shape is None else shape
        self.dtype = "real64"


def run(op, *inputs, **params):
    """Run the op named ``op``. Raises ValueError if the sizes differ."""
    if len({one.shape for one in inputs}) > 1:
        raise ValueError("sizes differ")
    kernel = _KERNELS[op]
    rows = zip(*(one.values for one in inputs), strict=True)
    return Array((kernel(row, **params) for row in rows), inputs[0].shape)


def _add(row, scale=1):
    return sum(row) * scale


def _multiply(row):
    first, second = row
    return first * second


_KERNELS = {"add": _add, "multiply": _multiply}


def add(one, other, scale=1):
    return run("add", one, other, scale=scale)


def multiply(one, other):
    return run("multiply", one, other)
