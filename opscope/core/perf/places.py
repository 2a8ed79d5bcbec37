"""Which module registers an op's models; a module is loaded when one of its ops is first priced.

``places.json`` has the names by module; ``scripts/make_ops_doc.py`` writes it from what the modules register.
"""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module, resources
from typing import Final, NamedTuple

FILE: Final = "places.json"
#: The packages whose modules register models.
FOLDERS: Final = ("ops", "hlo", "nodes")
#: Modules that register additional names for models of others. If several modules list a name, the first has
#: it.
ALIASES: Final = (
    "nodes.aten_names",
    "nodes.mindspore",
    "nodes.onnx",
    "nodes.tensorflow",
    "ops.prims",
)


class Places(NamedTuple):
    """For each op name: the module of its model, and the modules with models of its gradient."""

    models: Mapping[str, tuple[str, ...]]
    gradients: Mapping[str, tuple[str, ...]]


@lru_cache(maxsize=1)
def places() -> Places:
    """Return the table in the file beside this module."""
    text = resources.files(__package__).joinpath(FILE).read_bytes()
    table: dict[str, dict[str, list[str]]] = json.loads(text)
    return Places(_by_name(table["models"]), _by_name(table["gradients"]))


def _by_name(by_module: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    modules_by_name: dict[str, tuple[str, ...]] = {}
    for module, names in by_module.items():
        for name in names:
            modules_by_name[name] = (*modules_by_name.get(name, ()), module)
    return modules_by_name


def load_model(name: str) -> None:
    """Import the module that registers the model of exactly this name, if one does."""
    _load(places().models.get(name, ()))


def load_gradients(name: str) -> None:
    """Import the modules that register models of the gradient of exactly this name."""
    _load(places().gradients.get(name, ()))


def load_all() -> None:
    """Import every module that registers models."""
    models, gradients = places()
    _load(
        sorted(
            {
                module
                for of in (models, gradients)
                for modules_of_name in of.values()
                for module in modules_of_name
            }
        )
    )


def _load(modules: tuple[str, ...] | list[str]) -> None:
    for module in modules:  # wait for a module that another thread imports at the moment
        import_module(f"{__package__}.{module}")


def modules() -> list[str]:
    """Return the modules in the folders, aliases last, because they need the models they refer to."""
    module_names = []
    for folder in FOLDERS:
        package = import_module(f"{__package__}.{folder}")
        module_names += [
            f"{folder}.{module_info.name}" for module_info in pkgutil.iter_modules(package.__path__)
        ]
    return [*(name for name in sorted(module_names) if name not in ALIASES), *ALIASES]
