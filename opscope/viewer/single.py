"""One file to send: the viewer's pages with their data, which opens from disk and sends no requests.

The scripts and the style are allowed by their hashes and nothing else is: no request, no other script, no
picture. The pages' script is compressed, which a small loader undoes. The same profile makes the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from opscope.profile_html import page as words

from .bundle import static
from .embedded import Embedded, embed, zipped
from .question import whole

if TYPE_CHECKING:
    from opscope.profile import Profile

    from .viewed import Viewed

#: Bytes of a complete file; larger tables keep only their first rows.
MOST: Final = 1_500_000
#: The data get at least this many bytes, even if pages and stored answers take nearly all.
_LEAST: Final = 300_000
#: Bytes of the elements around the data's blocks, and of the index entries on rows that are left out.
_AROUND: Final = 14_000
#: Text that ends a script or a style, or changes how it is read.
_ENDS: Final = re.compile(rb"</(?:script|style)|<!--", re.IGNORECASE)


def write(viewed: Viewed, path: Path, *, sources: bool = False) -> dict[str, int]:
    """Write the file; it appears when it is complete, and replaces an existing one. ``sources``: the text of
    source files is in it. Returns how many rows were left out of tables, by name. Raises OSError if the file
    cannot be written."""
    text, left_out = page(viewed, sources=sources)
    # on the same disk, with the permissions of any new file; removed if writing fails
    with tempfile.TemporaryDirectory(prefix=".opscope-", dir=path.parent) as scratch:
        target = Path(scratch) / path.name
        target.write_bytes(text)
        target.replace(path)
    return left_out


def page(
    viewed: Viewed, *, most: int = MOST, sources: bool = False
) -> tuple[bytes, dict[str, int]]:
    """Return the file's bytes, about ``most``, and how many rows were left out of tables, by name."""
    loader, style = _code("loader.js"), _code("viewer.css")
    script = static("viewer.js").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    packed = base64.b64encode(zipped(script))
    policy = (
        f"default-src 'none'; script-src {_hash(loader)} {_hash(script)}; style-src {_hash(style)};"
        " base-uri 'none'; form-action 'none'"
    )
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{_title(viewed)}</title>\n"
    )
    # the packages in the script may be distributed only with their licences
    notices = b'<script type="text/plain" id="opscope-licences">%s</script>\n' % _code(
        "THIRD_PARTY.txt"
    )
    body = (
        '</head>\n<body>\n<div id="viewer">\n'
        f"{static_words(viewed.profile, styled=False)}\n"
        "<p>This page is drawn by JavaScript; without it, this is all. "
        "opscope report shows the rest as text.</p>\n</div>\n"
    )
    before = (head.encode(), b"<style>", style, b"</style>\n", body.encode(), notices)
    after = (
        b'<script type="application/octet-stream" id="opscope-script">', packed,
        b"</script>\n<script>", loader, b"</script>\n</body>\n</html>\n",
    )  # fmt: skip
    room = most - sum(map(len, (*before, *after))) - _AROUND
    # base64 has 4 bytes for 3
    data = embed(viewed, max(room, _LEAST) * 3 // 4, sources)
    return b"".join((*before, *_blocks(data), *after)), data.left_out


def static_words(profile: Profile, styled: bool = True, widest: int = 1_000) -> str:
    """Return the summary and the first ops as HTML that needs no script; ``styled``: cells are aligned.

    ``widest``: characters of a cell at most.
    """
    summary = profile.summary().row(0, named=True)
    device = "the CPU" if profile.cpu_only else "the GPU"
    return whole(words(repr(profile), summary, profile.op_totals(), device, styled, widest))


def _title(viewed: Viewed) -> str:
    names = ", ".join(Path(name).name or name for name in viewed.names)
    return html.escape(whole(names[:200])) + " – opscope"


def _code(name: str) -> bytes:
    """Return a file of the bundle, safe to put into a page. Raises ValueError if it is not safe."""
    # newlines as a browser reads them
    code = static(name).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    match = _ENDS.search(code)
    if match:
        raise ValueError(f"opscope/viewer/static/{name} holds {match[0]!r}: it cannot be embedded")
    return code


def _hash(code: bytes) -> str:
    """Return the content policy's source expression that allows only this code."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(code).digest()).decode()}'"


def _blocks(data: Embedded) -> list[bytes]:
    """Return the elements that hold the data. Base64 contains no character that ends an element."""
    named = [("index", data.index), *((str(n), block) for n, block in enumerate(data.blocks))]
    return [
        b'<script type="application/octet-stream" id="opscope-%s">%s</script>\n'
        % (name.encode(), base64.b64encode(block))
        for name, block in named
    ]
