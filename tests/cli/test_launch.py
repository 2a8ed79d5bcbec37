"""The user's command runs as though opscope were not there: streams, status, signals, environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from opscope.cli import launch

HOOK = Path(launch.__file__).parent / "_child"


def through(code: str, *args: str, **options) -> subprocess.Popen[str]:
    """A process that runs ``python -c code args`` through ``launch.run`` and exits as that says."""
    outer = "import os, sys; from opscope.cli import launch; sys.exit(launch.run(sys.argv[1:], os.environ))"
    command = [sys.executable, "-c", outer, sys.executable, "-c", textwrap.dedent(code), *args]
    return subprocess.Popen(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )


def test_status_arguments_and_streams_pass_through():
    code = "import sys; print(sys.argv[1:], sys.stdin.read()); print('e', file=sys.stderr); sys.exit(7)"
    process = through(code, "-o", "a b", "--steps", "", stdin=subprocess.PIPE)
    out, err = process.communicate("input")
    assert (process.returncode, err) == (7, "e\n")
    assert out == "['-o', 'a b', '--steps', ''] input\n"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGSEGV"])
def test_a_death_by_signal_has_the_shell_s_status(name):
    process = through(f"import os, signal; os.kill(os.getpid(), signal.{name})")
    process.communicate()
    assert process.returncode == 128 + getattr(signal, name)


COUNT = """
    import os, signal, sys, time
    seen = []
    def note(number, frame):
        seen.append(signal.Signals(number).name)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, note)
    print("ready", os.getpid(), flush=True)
    end = time.monotonic() + 20
    while not seen and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.2)
    print(seen)
    sys.exit(3)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGUSR1"])
def test_a_signal_sent_to_us_reaches_the_child_once_and_we_wait_for_it(name):
    process = through(COUNT)
    assert process.stdout.readline().startswith("ready")
    process.send_signal(getattr(signal, name))
    out, _ = process.communicate(timeout=30)
    assert (out, process.returncode) == (f"['{name}']\n", 3)


def test_ctrl_c_at_the_terminal_reaches_the_child_once():
    import pty

    master, slave = pty.openpty()
    process = through(COUNT, stdin=slave, start_new_session=True, preexec_fn=_take_terminal)
    os.close(slave)
    assert process.stdout.readline().startswith("ready")
    os.write(master, b"\x03")
    out, _ = process.communicate(timeout=30)
    os.close(master)
    assert (out, process.returncode) == ("['SIGINT']\n", 3)


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_a_command_that_does_not_exist_has_the_shell_s_status():
    with pytest.raises(FileNotFoundError) as caught:
        launch.run(["/nowhere/program"], os.environ)
    assert launch.explain_start_failure(caught.value, ["program"]) == (
        "program: command not found",
        127,
    )


@pytest.mark.parametrize(
    ("content", "status", "why"),
    [
        ("#!/nowhere/interpreter\n", 127, "its interpreter"),
        ("\0not a program", 126, "Exec format error"),
    ],
)
def test_a_program_that_is_there_and_does_not_start_is_not_said_to_be_absent(
    content, status, why, tmp_path
):
    program = tmp_path / "program"
    program.write_text(content)
    program.chmod(0o755)
    with pytest.raises(OSError) as caught:
        launch.run([str(program)], os.environ)
    said, found = launch.explain_start_failure(caught.value, [str(program)])
    assert found == status
    assert said.startswith(f"{program}: ")
    assert why in said


def test_a_command_that_is_no_word():
    with pytest.raises(OSError) as caught:
        launch.run([""], os.environ)
    assert launch.explain_start_failure(caught.value, [""]) == ("'': command not found", 127)


def test_the_caller_s_signals_are_as_they_were():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert launch.run([sys.executable, "-c", ""], os.environ) == 0
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "-u", "src/train.py", "--data", "x.py"], "train"),
        (["torchrun", "--nproc-per-node", "2", "train.py"], "train"),
        (["python", "-m", "torch.distributed.run", "--nproc-per-node=2", "a/train.py"], "train"),
        (["python", "-m", "pkg.train", "--lr", "1"], "train"),
        (["./bench"], "bench"),
        (["/opt/bin/server", "run"], "server"),
    ],
)
def test_a_profile_is_named_after_the_script(command, name):
    assert launch.name_of(command) == name


# ------------------------------------------------------------------------------------ the hook


def hooked(*command: str, path: str = "", **settings: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if path:
        env["PYTHONPATH"] = path
    env = launch.hooked_environment(env, str(HOOK), settings)
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_the_user_s_own_sitecustomize_still_runs_under_its_name(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.mine = __file__")
    code = "import sitecustomize, sys; print(mine == sitecustomize.__file__, mine in sys.path)"
    done = hooked(sys.executable, "-c", code, path=str(tmp_path))
    assert (done.stdout, done.stderr) == ("True False\n", "")


def test_a_broken_sitecustomize_of_the_user_is_reported_as_without_us(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import nothing_of_that_name")
    plain = subprocess.run(
        [sys.executable, "-c", ""],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    ours = hooked(sys.executable, "-c", "", path=str(tmp_path))
    assert ours.returncode == plain.returncode == 0
    assert "nothing_of_that_name" in plain.stderr
    assert ours.stderr.splitlines()[-1] == plain.stderr.splitlines()[-1]


def test_the_hook_is_not_on_the_program_s_path():
    done = hooked(sys.executable, "-c", "import sys; print(sys.path)")
    assert str(HOOK) not in done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize("flags", [["-I"], ["-S"], ["-E"]])
def test_a_python_that_wants_no_hooks_gets_none(flags, tmp_path):
    done = hooked(
        sys.executable,
        *flags,
        "-c",
        "import sys; print('opscope' in sys.modules)",
        OPSCOPE_RUN_DIR=str(tmp_path),
    )
    assert (done.stdout, done.stderr) == ("False\n", "")
    assert list(tmp_path.iterdir()) == []


def test_a_python_without_opscope_runs_and_the_reason_is_left_for_the_parent(tmp_path):
    # -c "…" after the hook: opscope is made impossible to import, as in a foreign environment
    (tmp_path / "block").mkdir()
    (tmp_path / "block" / "sitecustomize.py").write_text(
        "import sys; sys.modules['opscope'] = None"
    )
    parts = tmp_path / "parts"
    parts.mkdir()
    done = hooked(
        sys.executable,
        "-c",
        "print('fine')",
        path=str(tmp_path / "block"),
        OPSCOPE_RUN_DIR=str(parts),
    )
    assert (done.stdout, done.stderr, done.returncode) == ("fine\n", "", 0)
    (left,) = parts.iterdir()
    python, reason = left.read_text().splitlines()
    assert python == sys.executable
    assert "this Python cannot import opscope" in reason


def test_the_hook_parses_in_old_pythons():
    import ast

    source = (HOOK / "sitecustomize.py").read_text()
    ast.parse(source, feature_version=(3, 4))
    # Python 2: no f-strings, no annotations, no keyword that it does not have
    tree = ast.parse(source)
    assert not any(isinstance(node, (ast.JoinedStr, ast.AnnAssign)) for node in ast.walk(tree))
    assert source.isascii()
