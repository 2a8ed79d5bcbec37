"""DLProf's switches, 0.10 to 1.8: names, letters, values, and their effect in opscope. Names, letters, values
and defaults are those that ``dlprof --help`` printed (2020 to 2022), with the older names that scripts still
have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

#: ``text``: one value. ``flag``: true or false, true if left out. ``seconds`` and ``count``: a number that is
#: not negative. ``names``: values separated by commas, or words ended by ``--``. ``words``: one quoted value,
#: or words ended by ``--``. ``now``: no value; it is done at once.
Kind = Literal["text", "flag", "seconds", "count", "names", "words", "now"]
REPORTS: Final = (
    "summary", "detail", "iteration", "kernel", "tensor", "op_type", "group_node", "expert_systems",
)  # fmt: skip
#: DLProf's file names of three reports; the switch accepts these names as well.
FILES: Final = {"detail": "detailed", "tensor": "tensor_core", "group_node": "group_op"}
#: The name of the detailed report in the guide's own example of ``--reports``.
NODE_OP: Final = "node_op"
FORMATS: Final = ("csv", "json", "parquet")
ALL: Final = "all"
#: From the fewest messages to the most. ``detailed`` was also called ``verbose``.
QUIET, MINIMAL, NORMAL, DETAILED, DIAGNOSTIC = range(5)
LEVELS: Final = {
    "quiet": QUIET, "minimal": MINIMAL, "normal": NORMAL, "detailed": DETAILED, "verbose": DETAILED,
    "diagnostic": DIAGNOSTIC,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch. ``help`` says what it does; ``unused`` says why it does nothing here, if so. ``values`` are
    the allowed values, if they are limited; ``aliases`` are its other names."""

    name: str
    kind: Kind
    help: str
    letter: str = ""
    aliases: tuple[str, ...] = ()
    default: str = ""
    values: tuple[str, ...] = ()
    unused: str = ""


#: Title: the switches under it, in the order of DLProf's own help.
GROUPS: Final[dict[str, tuple[Switch, ...]]] = {
    "General": (
        Switch("help", "now", "Print this help.", "h"),
        Switch("version", "now", "Print the version.", "V"),
        Switch("force", "flag", "Replace the files of the same names.", "f", default="false"),
        Switch(
            "verbosity",
            "text",
            "What opscope prints: quiet (only what failed), minimal (and the files written), normal, "
            "detailed (and the first screen of the report), diagnostic (and the command and output of nsys).",
            "v",
            default="normal",
            values=tuple(LEVELS),
        ),
        Switch(
            "mode",
            "text",
            "Which framework to observe: simple (none), pytorch, tensorflow1 (sessions of tf.compat.v1), "
            "tensorflow2, tensorrt, or another mode of `opscope run`.",
            "m",
            default="auto: every framework that the program imports",
        ),
    ),
    "Recording": (
        Switch(
            "database",
            "text",
            "Make reports of what was recorded before, and run nothing: an opscope profile, a report or "
            "export of Nsight Systems, or a database of DLProf.",
            aliases=("nsys_database",),
        ),
        Switch(
            "nsys_base_name",
            "text",
            "First part of the name of the report of Nsight Systems.",
            aliases=("nsys_base_output_filename",),
            default="nsys_profile",
        ),
        Switch(
            "nsys_opts",
            "words",
            'Options of `nsys profile`, in quotes: "-t osrt,cublas -s cpu". cuda and nvtx are always traced.',
            aliases=("nsys_options",),
            default='"-t cuda,nvtx -s none"',
        ),
        Switch(
            "nsys_profile_range",
            "flag",
            "Record only what the program marks by cudaProfilerStart and cudaProfilerStop.",
            default="false",
        ),
        Switch("delay", "seconds", "Start to record after this many seconds.", "y", default="0"),
        Switch(
            "duration",
            "seconds",
            "Record for this many seconds, then end the program by SIGTERM; 0: to the end.",
            "d",
            default="0",
        ),
    ),
    "Aggregation": (
        Switch(
            "key_op",
            "text",
            "Name or id of the op that ends each iteration.",
            aliases=("key_node",),
            default="the framework's own, or what repeats",
        ),
        Switch("iter_start", "count", "Leave out iterations before this one.", default="0"),
        Switch(
            "iter_stop", "count", "Leave out iterations after this one.", default="the last one"
        ),
        Switch(
            "detailed_mode",
            "flag",
            "Of TensorFlow only: false leaves Data Type and Input Shapes out of the detailed report. What is "
            "recorded is the same.",
            default="true",
        ),
    ),
    "Output": (
        Switch("output_path", "text", "Folder for all that is written.", default="."),
        Switch(
            "base_name",
            "text",
            "First part of the names of the reports' files.",
            default="the name of the profile, its spaces replaced by _",
        ),
        Switch(
            "profile_name",
            "text",
            "Name of the profile, as the summary shows it, and of its folder NAME.opscope, from which "
            "`--database` makes more reports. Where --base_name is given too, that names the reports.",
            default="dlprof",
        ),
        Switch(
            "reports",
            "names",
            f"Reports to write: {ALL}, {', '.join(REPORTS)}.",
            aliases=("report",),
            default="none",
            values=(ALL, *REPORTS, *FILES.values(), NODE_OP),
        ),
        Switch(
            "formats",
            "names",
            f"Formats of the reports' files: {', '.join(FORMATS)}.",
            aliases=("file_formats",),
            default="csv",
            values=FORMATS,
        ),
        Switch(
            "domains", "names", "Domains of NVTX to aggregate, a file each.", default="every domain"
        ),
        Switch(
            "dump_model_data",
            "flag",
            "Write every op, kernel and copy with what joins them to BASE_model_data.json.",
            default="false",
        ),
        Switch(
            "tb_dir",
            "text",
            "",
            unused="opscope writes no files for TensorBoard; `opscope report PROFILE` shows the profile",
        ),
        Switch(
            "suppress_tb_files",
            "flag",
            "",
            "b",
            unused="opscope writes no files for TensorBoard",
        ),
        Switch(
            "graphdef",
            "text",
            "",
            aliases=("in_graphdef",),
            unused="opscope reads the graph from the program itself",
        ),
    ),
}
SWITCHES: Final = tuple(switch for group in GROUPS.values() for switch in group)
#: Every spelling of every switch, with its dashes.
BY_NAME: Final = {
    **{f"--{name}": switch for switch in SWITCHES for name in (switch.name, *switch.aliases)},
    **{f"-{switch.letter}": switch for switch in SWITCHES if switch.letter},
}
