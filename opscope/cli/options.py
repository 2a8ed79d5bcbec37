"""The options that commands share, each declared once, and records that hold several of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, wraps
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from . import common, declared

if TYPE_CHECKING:
    from opscope.profile import Profile

Files = Annotated[
    list[str],
    declared.Argument(
        metavar="FILE",
        help="A profile or a trace of any supported format; several files are the parts of one job.",
        show_default=False,
    ),
]
Top = Annotated[
    int | None,
    declared.Option(
        "--top",
        min=0,
        help="Give at most this many rows; 0 gives all.  [tables: 20, CSV and JSON: all]",
        show_default=False,
    ),
]
Strict = Annotated[
    bool, declared.Option("--strict", help="Fail if one of several files cannot be read.")
]
Unrelated = Annotated[
    bool,
    declared.Option(
        "--unrelated",
        help="The files are not of one job: show them side by side, and refuse only equal ones.",
    ),
]
Width = Annotated[
    int | None,
    declared.Option(
        "-w",
        "--width",
        min=0,
        help="Width of the tables in characters; 0 for no limit.",
        show_default=False,
    ),
]
Gpu = Annotated[
    str | None,
    declared.Option(
        "--gpu",
        help="Name of the GPU (or CPU), such as 'H100 SXM', if the trace does not name it.",
        show_default=False,
    ),
]
Model = Annotated[
    str | None,
    declared.Option(
        "--model",
        help="What ran: the ONNX model of an ONNX Runtime profile (best the optimised one), or the layer info"
        " of a TensorRT engine beside a trace of Nsight Systems.",
        metavar="FILE",
        show_default=False,
    ),
]
ModelConfig = Annotated[
    str | None,
    declared.Option(
        "--model-config",
        "--model_config",
        help="The config.json of the model that a server ran: it prices layers of experts, whose weights no"
        " trace records, and tells sliding windows.",
        metavar="FILE",
        show_default=False,
    ),
]
RequestsFile = Annotated[
    str | None,
    declared.Option(
        "--requests",
        help="The server's log of its requests: a CSV (id, arrival, first_token, end), spans of OpenTelemetry"
        " by vLLM or SGLang, or vLLM's lines.",
        metavar="FILE",
        show_default=False,
    ),
]
PowerFile = Annotated[
    str | None,
    declared.Option(
        "--power",
        help="Samples of the GPUs' power: a CSV (time, power in W, device), or nvidia-smi's.",
        metavar="FILE",
        show_default=False,
    ),
]
Slo = Annotated[
    str | None,
    declared.Option(
        "--slo",
        help="What was promised of requests, as ttft=200ms,tpot=30ms: how many kept it, which steps"
        " broke it.",
        metavar="LIMITS",
        show_default=False,
    ),
]
Price = Annotated[
    str | None,
    declared.Option(
        "--price",
        help="What an hour of each GPU costs, as 2.49/h: the cost of a million tokens.",
        metavar="PRICE",
        show_default=False,
    ),
]
CountersFile = Annotated[
    str | None,
    declared.Option(
        "--counters",
        help="Hardware counters of another run of the same program: ncu's CSV or report (.ncu-rep), joined to"
        " the kernels by name and order.",
        metavar="FILE",
        show_default=False,
    ),
]
BASELINES = "baselines"
Baselines = Annotated[
    str,
    declared.Option(
        "--baselines",
        metavar="FOLDER",
        help="Folder (path or URL) of the baselines.",
    ),
]
IterStart = Annotated[
    int | None,
    declared.Option(
        "--iter-start",
        "--iter_start",
        help="Only iterations (steps) from this number on; opscope iterations lists them.",
        show_default=False,
    ),
]
IterStop = Annotated[
    int | None,
    declared.Option(
        "--iter-stop",
        "--iter_stop",
        help="Only iterations (steps) up to this number.",
        show_default=False,
    ),
]
KeyNode = Annotated[
    str | None,
    declared.Option(
        "--key-node",
        "--key_node",
        "--key-op",
        "--key_op",
        help="The op that runs once in each iteration, by its name or op_id: iterations end where it ends.",
        metavar="OP",
        show_default=False,
    ),
]
DeviceNumber = Annotated[
    list[int] | None,
    declared.Option("--device", help="Only this device; may be given again.", show_default=False),
]
Rank = Annotated[
    list[int] | None,
    declared.Option("--rank", help="Only this rank; may be given again.", show_default=False),
]
Layer = Annotated[
    list[str] | None,
    declared.Option(
        "--layer",
        help="Only this layer with all inside it, or a pattern: 'encoder.*.attention'; may be given again.",
        show_default=False,
    ),
]
Range = Annotated[
    list[str] | None,
    declared.Option(
        "--range",
        help="Only this user range, or a pattern; may be given again.",
        show_default=False,
    ),
]
Csv = Annotated[bool, declared.Option("--csv", help="Print CSV: all rows, in ns, bytes and FLOP.")]
Json = Annotated[
    bool, declared.Option("--json", help="Print JSON: all rows, in ns, bytes and FLOP.")
]
Full = Annotated[
    bool,
    declared.Option(
        "--full", help="With --json: all rows of all there is, not the 100 kB that matter most."
    ),
]
Chosen = Annotated[
    str | None,
    declared.Option("-c", "--columns", help="Comma-separated columns to give, in this order."),
]
Sort = Annotated[
    str,
    declared.Option("--sort", help="Column to sort by: numbers largest first, text by alphabet."),
]
Each = Annotated[
    bool, declared.Option("--each", help="One row per execution, not per distinct op or kernel.")
]
Force = Annotated[bool, declared.Option("-f", "--force", help="Replace the profile if it exists.")]
Report = Annotated[
    bool, declared.Option("--report/--no-report", help="Print the report on stderr at the end.")
]


@dataclass(frozen=True, slots=True)
class Where:
    """The part of a profile that the user selects."""

    iter_start: IterStart = None
    iter_stop: IterStop = None
    key: KeyNode = None
    device: DeviceNumber = None
    rank: Rank = None
    layer: Layer = None
    range_: Range = None

    def select(self, profile: Profile) -> Profile:
        """Return the selected part of the profile; ends the command if it is empty."""
        bounds = self.iter_start, self.iter_stop
        try:
            return profile.select(
                steps=None if bounds == (None, None) else bounds,
                device=self.device,
                rank=self.rank,
                layer=self.layer,
                range=self.range_,
                key=self.key,
            )
        except ValueError as error:
            common.fail(str(error))


@dataclass(frozen=True, slots=True)
class Reading:
    """How files are read."""

    gpu: Gpu = None
    model: Model = None
    strict: Strict = False
    unrelated: Unrelated = False
    model_config: ModelConfig = None
    requests: RequestsFile = None
    power: PowerFile = None

    def load(self, paths: list[str], lean: bool = False, counters: str | None = None) -> Profile:
        """Return the profile in ``paths``, as ``common.load``."""
        return common.load(
            paths,
            self.gpu,
            self.strict,
            lean,
            self.model,
            counters,
            self.unrelated,
            self.model_config,
            self.requests,
            self.power,
        )


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each field of the records that it takes: Typer reads the signature."""
    takes = inspect.signature(command, eval_str=True).parameters.values()
    records = {each.name: each.annotation for each in takes if is_dataclass(each.annotation)}
    flat: list[inspect.Parameter] = []
    for each in takes:
        flat += _options(records[each.name]) if each.name in records else [each]
    flat = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in flat]

    @wraps(command)
    def with_records(**given: Any) -> None:
        values = {name: _record(record, given) for name, record in records.items()}
        command(**given, **values)

    with_records.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    with_records.__annotations__ = {each.name: each.annotation for each in flat}
    return with_records


def _options(record: Any) -> list[inspect.Parameter]:
    """Return a parameter for each field of a record and of records inside it, in order."""
    options: list[inspect.Parameter] = []
    for name, hint, default in _fields(record):
        kind = inspect.Parameter.KEYWORD_ONLY
        option = inspect.Parameter(name, kind, default=default, annotation=hint)
        options += _options(hint) if is_dataclass(hint) else [option]
    return options


def _record(record: Any, given: dict[str, Any]) -> Any:
    """Return the record with the values of its options, which are removed from ``given``."""
    values = {
        name: _record(hint, given) if is_dataclass(hint) else given.pop(name)
        for name, hint, _ in _fields(record)
    }
    return record(**values)


@cache  # every start builds every command, and nine of them have ``Where``
def _fields(record: Any) -> list[tuple[str, Any, Any]]:
    """Return the name, the type and the default of each field."""
    hints = get_type_hints(record, include_extras=True)
    return [
        (
            each.name,
            hints[each.name],
            inspect.Parameter.empty if each.default is MISSING else each.default,
        )
        for each in fields(record)
    ]
