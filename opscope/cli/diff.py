"""``opscope diff``: what changed from one run to another, and a limit for CI."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

from . import common, declared, html_file, options

if TYPE_CHECKING:
    from opscope.core.analysis.diff.gate import Held
    from opscope.core.analysis.diff.reduced import Ending
    from opscope.core.analysis.diff.tables import Difference
    from opscope.profile import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asks for."""

    a: Annotated[
        str,
        declared.Argument(
            metavar="A", help="The first run: a profile or trace.", show_default=False
        ),
    ]
    b: Annotated[
        str | None,
        declared.Argument(metavar="B", help="The second run, of any format.", show_default=False),
    ] = None
    against: Annotated[
        str | None,
        declared.Option(
            "--against",
            metavar="NAME",
            help="The first run is this baseline (opscope baseline save), and A the second.",
            show_default=False,
        ),
    ] = None
    baselines: options.Baselines = options.BASELINES
    fail_on: Annotated[
        list[str] | None,
        declared.Option(
            "--fail-on",
            "--fail_on",
            metavar="LIMIT",
            help="Exit with 1 if B is slower by more, beyond the noise: 'step>3%', 'step>2ms',"
            " 'op:aten::mm>5%' (* stands for any text), 'part:data loader>1ms'. May be given several times.",
            show_default=False,
        ),
    ] = None
    table: Annotated[
        str | None,
        declared.Option(
            "--table",
            metavar="TABLE",
            help="Only this table: run, part, op_sum, cause, op, kernel; of jobs of several ranks also rank"
            " and rank_step; of merged jobs op_total and kernel_total.  [CSV: cause]",
            show_default=False,
        ),
    ] = None
    top: options.Top = None
    csv: options.Csv = False
    json: Annotated[
        bool, declared.Option("--json", help="Print one JSON object, in ns, bytes and FLOP.")
    ] = False
    full: options.Full = False
    markdown: Annotated[
        bool, declared.Option("--markdown", help="Print Markdown, such as for a pull request.")
    ] = False
    html: html_file.Html = None
    embed_source: html_file.EmbedSource = False
    source_root: html_file.SourceRoot = None
    force: Annotated[
        bool, declared.Option("-f", "--force", help="With --html: replace a file that exists.")
    ] = False
    iter_start: options.IterStart = None
    iter_stop: options.IterStop = None
    device: options.DeviceNumber = None
    rank: options.Rank = None
    layer: options.Layer = None
    range_: options.Range = None
    gpu: options.Gpu = None
    strict: options.Strict = False
    unrelated: options.Unrelated = False
    width: options.Width = None

    @property
    def second(self) -> str:
        """The path of the second run."""
        return self.a if self.b is None else self.b

    def load(self, path: str) -> Profile:
        """Return the part of the profile in ``path`` that is compared."""
        where = options.Where(
            self.iter_start,
            self.iter_stop,
            device=self.device,
            rank=self.rank,
            layer=self.layer,
            range_=self.range_,
        )
        return where.select(common.load([path], self.gpu, self.strict, unrelated=self.unrelated))


@options.spread
def diff(asked: Options) -> None:
    """Say what explains the difference between two runs, be it of versions, frameworks or GPUs.

    Times are means per step. Steps are split into parts, and parts into ops, so that all adds up to the
    difference of the step exactly; a change is called only if it is larger than the noise of the steps.
    Exit code 1: a limit of --fail-on was exceeded. 3: this cannot be told, as with a single step.
    """
    if (asked.b is None) == (asked.against is None):
        common.fail("give two runs, A and B, or one and --against NAME")
    if asked.csv + asked.json + asked.markdown > 1:
        common.fail("--csv, --json and --markdown cannot be combined: choose one")
    if asked.full and not asked.json:
        common.fail("--full is an option of --json")
    if asked.html is not None:
        _html(asked, asked.html)
    else:
        _tables(asked)


def _html(asked: Options, html: str) -> None:
    """Write the pages of both runs into a file."""
    if asked.against is not None:
        common.fail("--html shows whole runs, of which a baseline keeps sums: give two runs")
    others = asked.csv, asked.json, asked.markdown, asked.fail_on
    if any(others) or asked.table is not None or asked.top is not None:
        common.fail(
            "--html cannot be combined with --csv, --json, --markdown, --table, --top or --fail-on"
        )
    below = html_file.embedded_folder(asked.embed_source, asked.source_root)
    with html_file.placed(html, asked.force) as page:
        base, new = map(asked.load, (asked.a, asked.second))
        html_file.write(
            page,
            base,
            [asked.a],
            new,
            (asked.second,),
            sources=asked.embed_source,
            source_root=below,
        )


def _tables(asked: Options) -> None:
    """Print the tables of two runs."""
    if asked.embed_source or asked.source_root is not None or asked.force:
        common.fail("--embed-source, --source-root and --force are options of --html")
    names = asked.against or common.base_name(asked.a), common.base_name(asked.second)
    tell(asked, names, lambda: difference_of(asked))


def tell(asked: Options, names: tuple[str, str], compared: Callable[[], Difference]) -> None:
    """Print the tables of the difference, and end with status 1 if a limit is exceeded, 3 if unknown.

    ``names`` are those of the runs; ``compared`` returns their difference, once the options are checked.
    """
    from opscope.core.analysis.diff.gate import BadLimit, held, parse
    from opscope.core.question.suggest import unknown
    from opscope.reports import difference as shown

    if asked.table is not None and asked.table not in shown.TITLES:
        common.fail(unknown("table", asked.table, list(shown.TITLES)))
    if asked.table is not None and (asked.json or asked.markdown):
        common.fail("--table is for the terminal and --csv; --json and --markdown have all tables")
    try:
        limits = [parse(text) for text in asked.fail_on or ()]  # before any file is read
    except BadLimit as error:
        common.fail(str(error))
    difference = compared()
    if asked.table is None and not asked.csv:
        difference.make()
    try:
        results = [held(limit, difference) for limit in limits]
    except BadLimit as error:
        common.fail(str(error))
    _show(asked, names, difference, results)
    exceeded = [result.said for result in results if result.failed]
    unjudged = [result.said for result in results if not result.judged]
    if exceeded:
        common.fail(f"exceeded: {'; '.join([*exceeded, *unjudged])}", 1)
    if unjudged:
        common.fail(f"cannot tell: {'; '.join(unjudged)}", 3)
    for result in results:
        if result.noisy:
            common.say(f"kept: {result.said}")


def difference_of(asked: Options) -> Difference:
    """Return the difference of the two runs."""
    from opscope.core.analysis.diff.tables import compare
    from opscope.profile.difference import give_up, prepare

    def begin(path: str, beside: list[Future[Profile]], how: str) -> Ending:
        profile = beside.pop().result() if beside else asked.load(path)
        reduction = profile._reducing(how)
        del profile
        give_up()
        return reduction

    if asked.against is not None:
        from opscope.baselines.folder import open_baseline, reducing

        base = open_baseline(asked.baselines, asked.against)
        return compare(partial(reducing, base), partial(begin, asked.a, []))
    with ThreadPoolExecutor(1) as beside:
        # open the second while the first is reduced, which alone uses only one of two processors
        second = [beside.submit(lambda: prepare(asked.load(asked.second)))]
        return compare(partial(begin, asked.a, []), partial(begin, asked.second, second))


def _show(
    asked: Options, names: tuple[str, str], difference: Difference, results: list[Held]
) -> None:
    """Print the difference and the verdicts on the limits, in the form that the options choose."""
    from opscope.reports import difference as shown

    rows = common.rows(asked.top)
    if asked.csv:
        common.raw(shown.frame(difference, asked.table or "cause"), True, asked.top)
    elif asked.json:
        if asked.full:
            pieces = shown.as_json(difference, names, results)
            common.stream(lambda stdout: stdout.writelines(pieces))
        else:
            common.emit(shown.small_json(difference, names, results, asked.top))
    elif asked.markdown:
        common.emit(shown.markdown(difference, names, results, rows))
    elif asked.table is None:
        common.show(shown.tables(difference, names, rows), asked.width)
    else:
        frame = shown.frame(difference, asked.table)
        common.show([shown.table(difference, asked.table, frame, rows)], asked.width)
