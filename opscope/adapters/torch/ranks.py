"""Records process groups and device meshes, which say what ranks take part in a collective, as specs.

A collective's text names its group (``process_group="0"``). A mark describes the group under that name. It is
emitted when the group is made, and again when a capture begins:

    process_group/0 = group() {rank=1, size=2, ranks="0-1", global_rank=1, world_size=2, backend="gloo", …}
    "mesh 0"/dp = dimension() {index=0, size=2, coordinate=1, group="0", device="cpu"}
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from opscope.adapters.shared.patch import Patches
from opscope.core.capture import session
from opscope.core.capture.emit import Emitter
from opscope.core.group_specs import DIMENSION, GROUP, GROUPS, format_ranks, mesh_name
from opscope.core.rangetext import clean_value, format_spec
from opscope.core.schema import OpCall

#: The most groups and the most meshes remembered, so that memory stays bounded.
_MOST: Final = 4096


class Ranks:
    """Observes the making of process groups and device meshes, from ``install`` on.

    Calls ``failed`` in an ``except``, as no error of ours may reach the program. Calls ``grouped`` when
    something listens and groups exist, before their first collective.
    """

    def __init__(
        self, emitter: Emitter, failed: Callable[[str], None], grouped: Callable[[], None]
    ) -> None:
        self._emitter = emitter
        self._failed = failed
        self._grouped = grouped
        self._patches = Patches()
        #: Group name → its spec. Destroyed groups stay, because their collectives were recorded.
        self._groups: dict[str, str] = {}
        #: The specs of each mesh's dimensions, made early: later the mesh's groups may no longer exist.
        self._meshes: list[list[str]] = []
        self._emitted: set[str] = set()
        self._listener: object = None

    def install(self) -> None:
        """Wrap the functions that make groups and meshes. Do nothing in a PyTorch without them."""
        if self._patches or not torch.distributed.is_available():
            return
        from torch.distributed import device_mesh, distributed_c10d

        self._patches.wrap(distributed_c10d, "_new_process_group_helper", self._making)
        # device meshes on GPUs make groups by ncclCommSplit, without the helper
        for owner in (distributed_c10d, device_mesh, torch.distributed):
            if hasattr(owner, "split_group"):
                self._patches.wrap(owner, "split_group", self._splitting)
        self._patches.wrap(device_mesh.DeviceMesh, "__init__", self._meshing)

    def uninstall(self) -> None:
        """Restore the wrapped functions."""
        self._patches.restore()

    def listen(self) -> None:
        """Emit all known specs where a new listener hears the emitter."""
        listener = (self._emitter.active, session.recorder())
        if listener == self._listener:
            return
        self._listener = listener
        self._emitted.clear()
        if self._emitter.active and torch.distributed.is_available():
            self._find()
            self._emit_new()

    def _making(self, make: Callable[..., Any]) -> Callable[..., Any]:
        named = inspect.signature(make)

        @functools.wraps(make)
        def _new_process_group_helper(*args: Any, **kwargs: Any) -> Any:
            created = make(*args, **kwargs)
            try:
                group = created[0] if isinstance(created, tuple) else created
                # a placeholder of another type means that this rank is not a member
                if isinstance(group, torch.distributed.ProcessGroup):
                    given = named.bind(*args, **kwargs).arguments
                    ranks = list(given.get("global_ranks_in_group") or range(group.size()))
                    self._add(group, ranks)
                    self._emit_new()
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                self._failed("a process group could not be described")
            return created

        return _new_process_group_helper

    def _splitting(self, split: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(split)
        def split_group(*args: Any, **kwargs: Any) -> Any:
            created = split(*args, **kwargs)
            try:
                self._find()
                self._emit_new()
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                self._failed("a process group could not be described")
            return created

        return split_group

    def _meshing(self, begin: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(begin)
        def __init__(mesh: Any, /, *args: Any, **kwargs: Any) -> None:
            begin(mesh, *args, **kwargs)
            try:
                # a slice of a mesh makes no groups of its own
                if kwargs.get("_init_backend", True) and len(self._meshes) < _MOST:
                    self._meshes.append(_dimensions(mesh, len(self._meshes)))
                    self._emit_new()
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                self._failed("a device mesh could not be described")

        return __init__

    def _find(self) -> None:
        """Add the groups that are not known yet: made before ``install``, or by ``split_group``."""
        ranks_of_group = torch.distributed.distributed_c10d._world.pg_group_ranks
        for group, ranks in list(ranks_of_group.items()):
            # an int stands for the groups that this rank is no member of
            if not isinstance(group, int) and group.group_name not in self._groups:
                self._add(group, sorted(ranks, key=ranks.get))

    def _add(self, group: Any, ranks: Sequence[int]) -> None:
        if len(self._groups) >= _MOST:
            return
        rank, size = group.rank(), group.size()
        # this may be the world group, which PyTorch then does not know as such yet
        world = torch.distributed.is_initialized()
        params = {
            "rank": rank,
            "size": size,
            "ranks": format_ranks(ranks),
            "global_rank": ranks[rank],
            "world_size": torch.distributed.get_world_size() if world else size,
            "backend": group.name(),
            "description": group.group_desc,
        }
        self._groups[group.group_name] = _spec(GROUPS, group.group_name, GROUP, params)

    def _emit_new(self) -> None:
        """Emit the specs that the current listener does not have yet."""
        emitter = self._emitter
        if not emitter.active:
            return
        if self._groups:
            self._grouped()
        meshes = (text for mesh in self._meshes for text in mesh)
        for text in (*self._groups.values(), *meshes):
            if text not in self._emitted:
                self._emitted.add(text)
                emitter.mark(emitter.prepare(text, "spec"))


def _dimensions(mesh: Any, number: int) -> list[str]:
    """The specs of a mesh's dimensions."""
    specs = []
    coordinates = mesh.get_coordinate()
    for index, size in enumerate(mesh.mesh.shape):
        member = coordinates is not None
        params = {
            "index": index,
            "size": int(size),
            "coordinate": coordinates[index] if member else None,
            "group": mesh.get_group(index).group_name if member else None,
            "device": mesh.device_type,
        }
        name = mesh.mesh_dim_names[index] if mesh.mesh_dim_names else f"dim{index}"
        specs.append(_spec(mesh_name(number), name, DIMENSION, params))
    return specs


def _spec(graph: str, key: str, name: str, params: dict[str, Any]) -> str:
    given = tuple((key, clean_value(value)) for key, value in params.items() if value is not None)
    return format_spec(graph, key, OpCall(name, (), (), given))
