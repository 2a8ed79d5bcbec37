"""`opscope dlprofviewer DB`: the viewer, at the port of DLProf's."""

from __future__ import annotations

import pytest

from opscope.cli import start as application


@pytest.mark.parametrize(
    ("words", "port"),
    [
        (["dlprofviewer", "a.sqlite"], 8000),
        (["dlprofviewer", "a.sqlite", "--port", "8123"], 8123),
        (["view", "a.sqlite"], 0),
    ],
)
def test_dlprofs_viewer_listens_at_its_port(monkeypatch, capsys, words, port):
    from opscope.viewer import bundle, serve

    asked = []

    def listen(host, port):
        asked.append((host, port))
        raise serve.Taken("it is taken")

    monkeypatch.setattr(serve, "listen", listen)
    monkeypatch.setattr(bundle, "static_files", lambda: None)
    monkeypatch.setattr("sys.argv", ["opscope", *words])
    assert application.run() == 2
    assert asked == [("127.0.0.1", port)]
    assert "it is taken" in capsys.readouterr().err
