"""Write docs/reference/advice.md from the detectors, and what they say of their examples.

Usage: python scripts/make_advice_doc.py [--check] [--run [NAME …]]

--run asks the detectors (those named, else all) about the example that tests/core/advice/test_NAME.py has as
EXAMPLE, and keeps what each says in tests/core/advice/examples/NAME.txt, of which the page is made. It needs
the real traces of the tests (OPSCOPE_SHARED); an example whose trace is absent is left as it is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from opscope.core.advice.ask import FOUND, detectors, threshold
from opscope.core.advice.finding import Detector

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "advice.md"
EXAMPLES = ROOT / "tests" / "core" / "advice" / "examples"
HEAD = """# Advice

`opscope advise FILE` says what bounds the program, asks {count} detectors what to change in it, and what that would save. `Profile.advice()`
and `opscope report FILE --reports advice` give the same. `scripts/make_advice_doc.py` writes this page.

```text
opscope advise run.opscope                             # a line a finding, two for the first three
opscope advise run.opscope -v                          # each in full, with the reasoning
opscope advise run.opscope --all                       # a line for every finding, and why each detector cannot tell
opscope advise run.opscope --detectors data_loader,tf32_off --json
opscope advise run.opscope --markdown > advice.md      # for a pull request
opscope advise run.opscope --fail-on data_loader --fail-on 'saving>5%'
```

## What a finding says

- **What** the program does, with its figures, and **where**: ops, layers, source lines. `--json` has each finding's evidence as rows.
- **The threshold**: what a finding needs at least. `--detectors host_bound:least=2%` sets it, where the detector has one to set; "nothing
  found" then says it too. A finding names another detector only where that found something.
- **What to change**, as code where the trace tells the framework.
- **The saving**: an estimate, a lower and an upper bound, and how each was computed, from columns that the profile has. Where a detector
  knows what its change does to the timeline and no more, the estimate is a [replay](../critical-path.md): the trace with all its dependencies,
  with the work that the change takes away or shortens; what waited for something else still waits. It is kept within the bounds.
- **Of what**: what it saves of a median step, and of the run (all of the wall time). What is paid once, as at the start, is of the run alone.
- **How likely** the change saves anything: high, medium or low.

One estimate was held against the same program mended: of a ResNet-50 whose data loader has no workers, `data_loader` says that the median
step of 176.3 ms takes 115.9 ms without the waits; with four workers it took 126.5 ms, so the estimate is
8.4 % too low.

The list is one with the [diagnosis](../diagnosis.md), which is its first rows. First are the causes of the diagnosis, each in one row with the
finding that explains it, and the findings that save over 5 % of a median step, at least or as an estimate of medium confidence or better: by
what they cost of the run. A cause that no detector explains is a finding of its own. Then come the others: those with an estimate, in its
order; those without, in the order of the upper bound, else of the time that they are about; last those whose estimate is nothing, as when
other work hides what the change would save. A detector that did not see what
it needs says that it **cannot tell**, and why; only where it saw everything, and all was well, does it say that it found nothing.

## Savings are not added up

They overlap: pinned memory and a faster loader may take away the same wait. Beneath the findings stands what **all of them together**
save: one replay with the changes of all. Where several touch the same work, the one that leaves least of it counts, never the product. A
finding that cannot say what its change does to the timeline is not in it, and is named. Where nothing can be replayed, there is no
combined figure, and the reason is said.

## In CI

`--fail-on` may be given several times. The command ends with status 1, and one line on stderr says which failed:

| gate | fails if |
|---|---|
| `data_loader` | this detector found something |
| `saving>5%` | the combined saving, or the estimate of any one finding, is more than 5 % of the window's wall time |
| `saving>20ms` | the same in time: `ns`, `us`, `ms` or `s` |
| `data_loader>5%` | the estimate of a finding of this detector is more than that |

A gate that cannot be judged (the detector cannot tell; a finding has no estimate, and its upper bound does not rule the gate out) is named
on stderr and does not fail, unless `--strict` is given. An expression that is no gate ends the command with status 2.

## Detectors of other packages

A detector is one object; [CONTRIBUTING.md](../../CONTRIBUTING.md) shows a whole one. A package
names its own under the entry-point group `opscope.detectors`; `opscope advise` then asks it as it asks opscope's own. If it fails, its
answer is that it cannot tell, with the error; the others are not affected.

```text
[project.entry-points."opscope.detectors"]
my_detector = "my_package.my_detector:DETECTOR"
```

## The detectors

| detector | question | other tools' name |
|---|---|---|
"""


def page() -> str:
    """The page's text."""
    every = [one for one in detectors().values() if one.find.__module__.startswith("opscope.")]
    rows = [
        f"| [`{one.name}`](#{one.name}) | {cell(one.question)} |"
        f" {cell(', '.join(one.known_as)) or '–'} |\n"
        for one in every
    ]
    return "".join((HEAD.format(count=len(every)), *rows, *map(section, every)))


def section(one: Detector) -> str:
    """What the page says of a detector."""
    lines = [f"\n### {one.name}\n\n", f"{one.question}\n\n"]
    needs = threshold(one)
    told = {"Looks at": one.looks_at, "A finding needs": f"{needs}." if needs else ""}
    told |= {"Cannot tell": one.abstains}
    told["Elsewhere called"] = ", ".join(one.known_as)
    lines += [f"- **{what}**: {text}\n" for what, text in told.items() if text]
    kept = EXAMPLES / f"{one.name}.txt"
    if kept.is_file():
        what, _, said = kept.read_text("utf-8").partition("\n")
        lines.append(f"\nAn example, {what}:\n\n```text\n{said.strip()}\n```\n")
    return "".join(lines)


def cell(text: str) -> str:
    """The text for a table's cell."""
    return text.replace("|", "\\|")


def example(name: str) -> tuple[str, Any] | None:
    """The words of a detector's example and what it is made of; None if it has none."""
    place = EXAMPLES.parent / f"test_{name}.py"
    if not place.is_file():
        return None
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    found = getattr(import_module(f"tests.core.advice.test_{name}"), "EXAMPLE", None)
    return None if found is None else (str(found[0]), found[1])


def said(name: str, shared: Path) -> str | None:
    """What the detector says of its example, as the page shows it; None if its trace is absent.

    Raises LookupError if the detector has no example, or finds nothing in it.
    """
    import opscope
    from opscope.core.advice import advised

    found = example(name)
    if found is None:
        raise LookupError(f"tests/core/advice/test_{name}.py has no EXAMPLE")
    words, of = found
    if callable(of):
        profile = of()
    else:
        paths = [shared / one for one in ([of] if isinstance(of, str) else of)]
        if not all(path.exists() for path in paths):
            return None
        profile = opscope.load(paths if len(paths) > 1 else paths[0])
    rows = [row for row in profile.advice([name]).to_dicts() if row["outcome"] == FOUND]
    if not rows:
        raise LookupError(f"{name} finds nothing in its example")
    return "\n".join([words, *advised.lines(rows[0])]) + "\n"


def run(names: list[str]) -> Iterator[str]:
    """Ask the detectors about their examples and keep what they say; yield what is lacking."""
    shared = Path(os.environ.get("OPSCOPE_SHARED", ROOT.parent / "shared")) / "data"
    EXAMPLES.mkdir(exist_ok=True)
    for name in names or detectors():
        try:
            told = said(name, shared)
        except LookupError as error:
            yield str(error)
            continue
        if told is None:
            yield f"{name}: its trace is not in {shared}"
        else:
            (EXAMPLES / f"{name}.txt").write_text(told, "utf-8")


def main() -> int:
    """Write the page, or with ``--check`` print whether it is up to date."""
    if "--run" in sys.argv[1:]:
        for lacking in run(sys.argv[sys.argv.index("--run") + 1 :]):
            print(lacking)
    text = page()
    if "--check" in sys.argv[1:]:
        same = PAGE.is_file() and PAGE.read_text("utf-8") == text
        print("up to date" if same else f"{PAGE} is not up to date: run scripts/make_advice_doc.py")
        return 0 if same else 1
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
