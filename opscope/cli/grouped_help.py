"""The help of a command: its common options in groups, and with ``--help-all`` every option."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from typer.core import TyperCommand

#: The most lines of a command's ``--help``; a command with shorter complete help always shows all options.
LINES: Final = 40
#: The groups in their order, each with the first names of its options.
GROUPS: Final[Mapping[str, str]] = {
    "What to record": """
        --output --force --steps --delay --duration --whole --memory --samples --stacks --private --light
        --spells --last --slow --last-signal --attachable --dump --status --stop --inject""",
    "How to record": """
        --backend --mode --counters-by --trace --capture-range-end --cuda-graph-trace --self-test
        --measure""",
    "What to show": """
        --reports --by --detectors --table --sort --search --each --roofline --all --verbose --ops --top
        --columns --style --domains --hta --dict --report --compare --slo --price""",
    "What is changed": "--op --kernel --copies --communication --launches --host",
    "How to print or write it": """
        --to --json --full --csv --markdown --html --formats --output-path --base-name --embed-source
        --source-root --width --advice""",
    "The change": "--patch --env --git --carry --budget --runs --keep",
    "The answer for an agent": "--set --tokens --skill",
    "A limit for CI": "--fail-on",
    "A part of the profile": "--iter-start --iter-stop --key-node --device --rank --layer --range",
    "How the files are read": """
        --gpu --model --model-config --requests --power --counters --strict --unrelated""",
    "Baselines": "--against --baselines --commit",
    "Many ranks": "--jobs --dask --ray --parts --ranks",
    "The dataset of jobs": "--fleet --job --day --label --gpu-hours",
    "The page": "--port --no-browser --editor",
}
_WRITTEN: Final = {
    "--output": "How to print or write it",
    "--force": "How to print or write it",
}
#: Options that are in another group for some commands.
_OTHERWISE: Final[Mapping[str, Mapping[str, str]]] = {
    "run": {"--counters": "What to record"},
    **dict.fromkeys(("report", "diff", "export", "partial", "merge"), _WRITTEN),
    "redact": {**_WRITTEN, "--private": "What to show"},
    "view": {"--host": "The page"},
    "dlprofviewer": {"--host": "The page"},
}
#: Options that are in every command's short help.
COMMON: Final = frozenset(
    """
    --output --steps --duration --backend --mode --memory --light --last --attachable --samples --status
    --reports --by --detectors --table --sort --search --each --top --roofline --compare --columns --ops
    --to --json --csv --markdown --html --formats --output-path --width --fail-on
    --iter-start --rank --layer --gpu --counters --jobs --fleet
    --op --kernel --copies --communication --launches --host --port --no-browser --measure
    """.split()  # noqa: SIM905 - a list of 50 strings is ten times as long
)


class Grouped(TyperCommand):
    """A command with short help, and complete help with ``--help-all``."""

    _everything = None
    _all = False

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, ``--help-all`` last."""
        params = super().get_params(ctx)
        shows = self.get_help_option(ctx)
        if shows is None:
            return params
        if self._everything is None:
            option = copy.copy(shows)
            option.name, option.opts, option.help = "help_all", ["--help-all"], "Show every option."
            option.callback = self._show_all
            self._everything = option
        return [*params, self._everything]

    def _show_all(self, ctx: Any, option: Any, wanted: bool) -> None:
        if not wanted or ctx.resilient_parsing:
            return
        self._all = True
        print(ctx.get_help())  # noqa: T201 - as the option --help does
        ctx.exit()

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line as a manual has them: ``FILE...``, not ``{FILE}...``."""
        pieces: list[str] = super().collect_usage_pieces(ctx)
        plain = [re.sub(r"[{}]|^\[(?=\[)|(?<=[\].])\](?=\.\.\.$)", "", piece) for piece in pieces]
        return [re.sub(r"(?<=\.\.\.)\.+$|(?<=\.\.\.\])\.+$", "", piece) for piece in plain]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options in groups."""
        params = [param for param in self.get_params(ctx) if param.get_help_record(ctx) is not None]
        of = [param for param in params if param.param_type_name == "argument"]
        if of:
            with formatter.section("Arguments"):
                rows = [param.get_help_record(ctx) for param in of]
                formatter.write_dl([(re.sub(r" <[^>]*>+", "", name), text) for name, text in rows])
        groups = _grouped(str(ctx.info_name), [param for param in params if param not in of])
        complete = ctx.make_formatter()
        _write(ctx, complete, groups)
        before = formatter.getvalue().count("\n")
        if self._all or before + complete.getvalue().count("\n") < LINES:
            _write(ctx, formatter, groups)
            return
        _write_short(ctx, formatter, {title: _common(each) for title, each in groups.items()})
        left = [
            name(each)
            for each in params
            if not (each in of or _common([each]) or name(each).startswith("--help"))
        ]
        formatter.write_paragraph()
        formatter.write_text(
            f"{ctx.command_path} --help-all says more of these, and has: {', '.join(left)}."
        )


def name(option: Any) -> str:
    """Return the name of the option that is written first: the long one."""
    long = [text for text in option.opts if text.startswith("--")]
    return str(long[0] if long else option.opts[0])


def _common(options: Iterable[Any]) -> list[Any]:
    return [each for each in options if name(each) in COMMON]


def _grouped(command: str, options: Iterable[Any]) -> dict[str, list[Any]]:
    """Return the groups of a command's options, in order, with options of no group last."""
    group_of = {flag: title for title, flags in GROUPS.items() for flag in flags.split()}
    group_of |= _OTHERWISE.get(command, {})
    groups: dict[str, list[Any]] = {title: [] for title in (*GROUPS, "Other")}
    for option in options:
        groups[group_of.get(name(option), "Other")].append(option)
    return {title: held for title, held in groups.items() if held}


def _write_short(ctx: Any, formatter: Any, groups: Mapping[str, list[Any]]) -> None:
    """Write a line for each option: its names, and as much of its help as fits."""
    shown = {
        title: [_short(*option.get_help_record(ctx)) for option in options]
        for title, options in groups.items()
        if options
    }
    widest = max(len(names) for rows in shown.values() for names, _ in rows)
    room = formatter.width - widest - 4
    for title, rows in shown.items():
        with formatter.section(title):
            for names, text in rows:
                formatter.write(f"  {names:{widest}}  {start(text, room)}\n")


def start(text: str, room: int) -> str:
    """Return as many clauses as ``room`` characters hold; if they end in a list after a colon, only the
    list's first items."""
    if len(text) <= room:
        return text
    ends = [match.start() for match in re.finditer(r"[:;,] | \(", text[: room + 1])]
    ends = [end for end in ends if text.count("(", 0, end) == text.count(")", 0, end)]
    if not ends:
        return f"{text[: room - 1].rstrip()}…"
    last = [end for end in ends if end < room - 2][-1:]
    if last and re.match(r", (and|or)\b" if ":" not in text[: last[0]] else ", ", text[last[0] :]):
        return f"{text[: last[0]]}, …"
    return text[: ends[-1]]


def _short(names: str, text: str) -> tuple[str, str]:
    """Return an option's names without spellings with underscores, and the first clause of its help."""
    names = re.sub(r", --[\w-]*_[\w-]*", "", names)
    names = re.sub(r", --key-op\b", "", names)
    return _plain(names), re.split(r"[.;] |  \[", text)[0].rstrip(".")


def _plain(text: str) -> str:
    """Return a text with the kinds and bounds of values in words."""
    text = re.sub(r"<(int|float|list\[int\])[^>]*>", "N", text)
    text = re.sub(r"<[^>]*>\]?", "TEXT", text)
    return re.sub(r"x>=([\d.]+)", r"\1 or more", re.sub(r"([\d.]+)<=x<=", r"\1 to ", text))


def _write(ctx: Any, formatter: Any, groups: Mapping[str, list[Any]]) -> None:
    for title, options in groups.items():
        if options:
            with formatter.section(title):
                rows = [option.get_help_record(ctx) for option in options]
                formatter.write_dl([(_plain(names), _plain(text)) for names, text in rows])
