"""``opscope diff``: what changed from one run to another, and a limit for CI."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from . import common, html_file

if TYPE_CHECKING:
    from opscope.profile import Profile


def diff(
    a: Annotated[
        str,
        typer.Argument(metavar="A", help="The first run: a profile or trace.", show_default=False),
    ],
    b: Annotated[
        str, typer.Argument(metavar="B", help="The second run, of any format.", show_default=False)
    ],
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            "--fail_on",
            metavar="LIMIT",
            help="Exit with 1 if B is slower by more, beyond the noise: 'step>3%', 'step>2ms',"
            " 'op:aten::mm>5%' (* stands for any text), 'part:data loader>1ms'. May be given several times.",
            show_default=False,
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(
            "--table",
            metavar="TABLE",
            help="Only this table: run, part, cause, op, kernel; of jobs of several ranks also rank and"
            " rank_step; of merged jobs op_total and kernel_total.  [CSV: cause]",
            show_default=False,
        ),
    ] = None,
    top: common.Top = None,
    csv: common.Csv = False,
    json: common.Json = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown, such as for a pull request.")
    ] = False,
    html: html_file.Html = None,
    embed_source: html_file.EmbedSource = False,
    source_root: html_file.SourceRoot = None,
    force: Annotated[
        bool, typer.Option("-f", "--force", help="With --html: replace a file that exists.")
    ] = False,
    iter_start: common.IterStart = None,
    iter_stop: common.IterStop = None,
    device: common.DeviceNumber = None,
    rank: common.Rank = None,
    layer: common.Layer = None,
    range_: common.Range = None,
    gpu: common.Gpu = None,
    strict: common.Strict = False,
    width: common.Width = None,
) -> None:
    """Say what explains the difference of two runs: other versions, frameworks or GPUs, or the same.

    Times are means per step. Steps are split into parts, and parts into ops, so that all adds up to the
    difference of the step exactly; a change is called only if it is larger than the noise of the steps.
    Exit code 1: a limit of --fail-on was exceeded.
    """
    from opscope.core.analysis.diff.gate import BadLimit, held, parse
    from opscope.core.analysis.diff.reduced import Ending
    from opscope.core.analysis.diff.tables import compare
    from opscope.core.question.suggest import unknown
    from opscope.profile.difference import give_up
    from opscope.reports import difference as shown

    if csv + json + markdown > 1:
        common.fail("--csv, --json and --markdown cannot be combined: choose one")
    if html is not None:
        if csv or json or markdown or table is not None or fail_on or top is not None:
            common.fail(
                "--html cannot be combined with --csv, --json, --markdown, --table, --top or --fail-on"
            )
        below = html_file.embedded_folder(embed_source, source_root)
        with html_file.placed(html, force) as page:
            where = (iter_start, iter_stop, device, rank, layer, range_)
            base, new = (common.select(common.load([path], gpu, strict), *where) for path in (a, b))
            html_file.write(page, base, [a], new, (b,), sources=embed_source, source_root=below)
        return
    if embed_source or source_root is not None or force:
        common.fail("--embed-source, --source-root and --force are options of --html")
    if table is not None and table not in shown.TITLES:
        common.fail(unknown("table", table, list(shown.TITLES)))
    if table is not None and (json or markdown):
        common.fail("--table is for the terminal and --csv; --json and --markdown have all tables")
    try:
        limits = [parse(text) for text in fail_on or ()]  # before anything is read
    except BadLimit as error:
        common.fail(str(error))

    def opened(path: str) -> Profile:
        profile = common.load([path], gpu, strict)
        return common.select(profile, iter_start, iter_stop, device, rank, layer, range_)

    def begun(path: str, beside: list[Future[Profile]], how: str) -> Ending:
        profile = beside.pop().result() if beside else opened(path)
        found = profile._reducing(how)
        del profile
        give_up()
        return found

    with ThreadPoolExecutor(1) as beside:
        # the second is opened while the first is reduced, which alone leaves one of two processors half idle
        second = [beside.submit(lambda: opened(b)._begun())]
        difference = compare(partial(begun, a, []), partial(begun, b, second))
    if table is None and not csv:
        difference.make()
    try:
        results = [held(limit, difference) for limit in limits]
    except BadLimit as error:
        common.fail(str(error))
    names = (common.base_name(a), common.base_name(b))
    if csv:
        common.raw(shown.frame(difference, table or "cause"), True, top)
    elif json:
        pieces = shown.as_json(difference, names, results)
        common.stream(lambda stdout: stdout.writelines(pieces))
    elif markdown:
        common.emit(
            shown.markdown(difference, names, results, (common.TOP if top is None else top) or None)
        )
    else:
        rows = (common.TOP if top is None else top) or None
        if table is None:
            common.show(shown.tables(difference, names, rows), width)
        else:
            found = shown.frame(difference, table)
            common.show([shown.table(difference, table, found, rows)], width)
    exceeded = [one.said for one in results if one.failed]
    if exceeded:
        common.fail(f"exceeded: {'; '.join(exceeded)}", 1)
