"""What ``opscope dlprof`` writes beside the profile: the reports in DLProf's layout, and the model's data."""

from __future__ import annotations

import glob
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from opscope.cli import common

from .asked import Asked
from .switches import FILES

if TYPE_CHECKING:
    import polars as pl

    from opscope.profile import Profile

_MODEL_DATA: Final = "model_data"
_TENSORFLOW: Final = "tensorflow"
#: Rows of a table that are made into text at once.
_ROWS: Final = 50_000


class NotWritten(RuntimeError):
    """The reports cannot be made or written; the message says why."""


def check(asked: Asked) -> None:
    """End the process with status 2 if a file that is to be written exists and is not to be replaced."""
    if asked.folder.exists() and not asked.folder.is_dir():
        common.fail(f"--output_path={asked.folder}: this is a file")
    for path in () if asked.force else _take(asked):
        common.fail(f"{path} exists; --force=true replaces it, --base_name names others")
    if asked.force and asked.path.exists() and not (asked.path / "meta.json").is_file():
        common.fail(f"{asked.path} is not a profile, so --force does not replace it")


def _take(asked: Asked) -> Iterator[Path]:
    """Yield the existing files with names of the reports; the domains in the names are not known yet."""
    folder = Path(glob.escape(str(asked.folder)))
    for report in asked.reports:
        for kind in asked.formats:
            name = f"{glob.escape(asked.base)}_{FILES.get(report, report)}"
            yield from map(Path, sorted(glob.glob(str(folder / f"{name}.{kind}"))))
            yield from map(Path, sorted(glob.glob(str(folder / f"{name}_*.{kind}"))))
    if asked.dump and _model_data(asked).exists():
        yield _model_data(asked)


def _model_data(asked: Asked) -> Path:
    return asked.folder / f"{asked.base}_{_MODEL_DATA}.json"


def make_folder(folder: Path) -> list[Path]:
    """Make the folder; return those that were made, the innermost first. Ends the process if that fails."""
    missing = [
        folder_above for folder_above in (folder, *folder.parents) if not folder_above.exists()
    ]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        common.fail(f"--output_path={folder}: {error.strerror or error}")
    return missing


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove the folders that were made and hold nothing."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:  # the folder has files
            return


def write(asked: Asked, profile: Profile) -> list[Path]:
    """Write the reports and the model's data; return the files. Raises NotWritten; then it writes none."""
    from opscope.reports import dlprof  # lazy: few commands need it

    paths: list[Path] = []
    try:
        with tempfile.TemporaryDirectory(prefix=f".{asked.base}-", dir=asked.folder) as scratch:
            if asked.dump:
                _dump(profile, Path(scratch, _MODEL_DATA))
            about_shapes = _of_tensorflow(asked, profile)
            if not asked.detailed and not about_shapes:
                common.say(
                    "--detailed_mode=false: no effect: DLProf has this mode for TensorFlow only"
                )
            if asked.reports:
                paths = dlprof.write(
                    profile,
                    asked.reports,
                    asked.folder,
                    base_name=asked.base,
                    formats=asked.formats,
                    domains=asked.domains,
                    key=asked.key,
                    iter_start=asked.iter_start,
                    iter_stop=asked.iter_stop,
                    force=asked.force,
                    profile_name=asked.name,
                    shapes=asked.detailed or not about_shapes,
                )
            if asked.dump:
                os.replace(Path(scratch, _MODEL_DATA), _model_data(asked))
                paths = [*paths, _model_data(asked)]
    except (dlprof.ReportError, FileExistsError) as error:
        raise NotWritten(str(error)) from error
    except OSError as error:
        raise NotWritten(f"{asked.folder}: {error.strerror or error}") from error
    return paths


def _of_tensorflow(asked: Asked, profile: Profile) -> bool:
    """Whether ``--detailed_mode`` is about this profile: DLProf writes it for TensorFlow only."""
    frameworks = profile.trace["processes"]["framework"].drop_nulls()
    return asked.mode.startswith(_TENSORFLOW) or any(
        _TENSORFLOW in name.lower() for name in frameworks
    )


def _dump(profile: Profile, path: Path) -> None:
    """Write ops, kernels and copies as one JSON object."""
    with path.open("w", encoding="utf-8") as file:
        for at, table in enumerate(("ops", "kernels", "memops")):
            frame: pl.DataFrame = getattr(profile, table)()
            file.write(f'{"," if at else "{"}\n"{table}": [')
            for first in range(0, len(frame), _ROWS):
                rows = frame[first : first + _ROWS].write_json()[1:-1]
                file.write(f"{',' if first else ''}\n{rows}")
            file.write("\n]")
        file.write("\n}\n")
