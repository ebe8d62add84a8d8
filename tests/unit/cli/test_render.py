from __future__ import annotations

import json
import math
import os
import pty
import select
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from enum import Enum
from pathlib import PurePosixPath
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlworkbench.cli import output_formats, render
from mlworkbench.errors import ConfigError, MlwError, UnknownName, Unreachable, UsageError
from mlworkbench.history.journal_parsing import strict_json
from mlworkbench.report import units
from mlworkbench.testing import FakeClock

HOSTILE = "\x1b]0;pwned\x07[red]x[/red]\x9b2J\u202e\nforged"


def emitted(capsys: pytest.CaptureFixture[str], data: object, output: str, **options: object) -> str:
    render.emit(data, output=output, **options)  # type: ignore[arg-type]
    return capsys.readouterr().out


def run_code(code: str, *, stdout: int = subprocess.PIPE, **env: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, **env},
        timeout=60,
    )


def run_on_terminal(code: str, **env: str) -> bytes:
    """Run a program on a terminal and return its output (stdout and stderr)."""
    master, slave = pty.openpty()
    clean = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**clean, "TERM": "xterm", **env},
    )
    os.close(slave)
    out = b"".join(read_all(master))
    os.close(master)
    assert child.wait(60) == 0, out
    return out


def read_all(master: int) -> Iterator[bytes]:
    while select.select([master], [], [], 60)[0]:
        try:
            data = os.read(master, 65536)
        except OSError:  # Linux reports a closed terminal this way
            return
        if not data:
            return
        yield data


# --- JSON


class Status(str, Enum):
    DONE = "Completed"


@pytest.mark.parametrize("output", ["json", "jsonc"])
def test_json_is_strict_and_readable(capsys: pytest.CaptureFixture[str], output: str) -> None:
    data = {
        "nan": math.nan,
        "inf": [math.inf, {"x": -math.inf}],
        "text": "é漢",
        "status": Status.DONE,
        1: (1, 2.5),
        "path": PurePosixPath("/a"),
        "map": MappingProxyType({"k": None}),
        "bytes": b"\xe9",
    }
    text = emitted(capsys, data, output)
    assert "é漢" in text and text.startswith('{\n  "nan": "NaN",\n')
    assert json.loads(text, parse_constant=pytest.fail) == {
        "nan": "NaN",
        "inf": ["Infinity", {"x": "-Infinity"}],
        "text": "é漢",
        "status": "Completed",
        "1": [1, 2.5],
        "path": "/a",
        "map": {"k": None},
        "bytes": "\udce9",
    }


TEXT = st.text(st.characters())


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner),
    )
)
def test_any_value_in_any_format(data: object) -> None:
    simple = output_formats.to_json_types(data)
    text = output_formats.as_json(simple, "utf-8")
    text.encode()
    back = json.loads(text, parse_constant=pytest.fail)
    assert output_formats.to_json_types(back) == strict_json(simple)
    for output in (text, output_formats.as_tsv(simple, ordered=False), table(simple)):
        assert output.isprintable() or not any(char in output for char in "\x1b\x07\x7f\x9b\u202e\u2028\r\x00")
        output.encode()
    rows = simple if isinstance(simple, list) else [simple]
    assert output_formats.as_tsv(simple, ordered=True).count("\n") == len(rows)


def table(data: object) -> str:
    grid = output_formats.as_grid(data, None)
    return "" if grid is None else output_formats.format_table(grid)


def test_json_escapes_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    text = emitted(capsys, [HOSTILE, "\ud800"], "json")
    assert json.loads(text) == [HOSTILE, "\ud800"]
    assert not set(text) & set("\x1b\x07\x9b\u202e\ud800")


def test_ascii_terminal_gets_ascii_json() -> None:
    result = run_code(
        "from mlworkbench.cli import render; render.emit(['é'], output='json')\nrender.emit(['é'], output='tsv')",
        PYTHONIOENCODING="ascii",
    )
    assert result.stdout == b'[\n  "\\u00e9"\n]\n\\xe9\n'


# --- TSV


def test_tsv(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"b": 1.0, "a": "x\ty\nz"}, {"a": None, "c": [1, {"d": True}]}]
    assert emitted(capsys, rows, "tsv") == 'x\\ty\\nz\t1.0\tNone\nNone\tNone\t[1,{"d":true}]\n'
    assert emitted(capsys, 0.1 + 0.2, "tsv") == "0.30000000000000004\n"
    assert emitted(capsys, ["a", True, 3, math.nan], "tsv") == "a\ntrue\n3\nNaN\n"
    assert emitted(capsys, [{"b": 1, "a": 2}], "tsv", query="[].{b: b, a: a}") == "1\t2\n"
    assert emitted(capsys, [{"b": 1, "a": 2}], "tsv", query="[].[b, a]") == "1\t2\n"
    assert emitted(capsys, [], "tsv") == ""


# --- tables


def test_table_of_rows(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"run_id": "demo-1", "accuracy": 0.123456789, "n": 7, "ok": True, "more": {"a": [1]}},
        {"run_id": "漢字", "accuracy": None, "n": 12345, "ok": False},
        {"run_id": "e\u0301x", "accuracy": math.nan, "n": 1, "ok": None},
    ]
    assert emitted(capsys, rows, "table").splitlines() == [
        "Run ID  Accuracy      N  Ok     More",
        "------  --------  -----  -----  ---------",
        'demo-1  0.123457      7  true   {"a":[1]}',
        "漢字              12345  false",
        "e\u0301x           NaN      1",
    ]
    assert emitted(capsys, rows, "table", columns=["n", "run_id"]).splitlines()[:3] == [
        "    N  Run ID",
        "-----  ------",
        "    7  demo-1",
    ]


def test_table_of_other_shapes(capsys: pytest.CaptureFixture[str]) -> None:
    assert emitted(capsys, {"run_id": "x", "loss": 0.5}, "table") == "Run ID  x\nLoss    0.5\n"
    assert emitted(capsys, {"run_id": "x", "loss": 0.5}, "table", columns=["loss"]) == "Loss  0.5\n"
    assert emitted(capsys, ["a", 3], "table") == "Result\n------\na\n3\n"
    assert emitted(capsys, "one", "table") == "one\n"
    assert emitted(capsys, 1e-9, "table") == "1e-09\n"
    for nothing in (None, [], {}):
        assert emitted(capsys, nothing, "table") == ""
    assert emitted(capsys, [{"a": 1, "b": 2}], "table", query="[].[a, b]", columns=["a"]) == (
        "Column1  Column2\n-------  -------\n      1        2\n"
    )


def test_table_escapes_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    text = emitted(capsys, [{HOSTILE: HOSTILE, "long": "x" * 10_000}], "table")
    assert text.count("\n") == 3 and "\x1b" not in text and "[red]x[/red]" in text
    assert max(map(len, text.splitlines())) < 400 and "x…" in text
    assert "x" * 10_000 in emitted(capsys, {"long": "x" * 10_000}, "table")


EMIT = "from mlworkbench.cli import render; render.emit({data!r}, output='{output}')"


def test_rich_table_on_a_terminal() -> None:
    rows = [{"run_id": HOSTILE, "loss": 0.25}, {"run_id": "漢字", "loss": 1}]
    out = run_on_terminal(EMIT.format(data=rows, output="table"), COLUMNS="100")
    assert b"[red]x[/red]" in out and b"^[]0;pwned\\x07" in out and b"\\nforged" in out
    assert b"\x1b]" not in out and "\u202e".encode() not in out and "\x9b".encode() not in out
    assert b"Run ID" in out and b"\x1b[1m" in out
    assert b"\x1b" not in run_on_terminal(EMIT.format(data=rows, output="table"), COLUMNS="100", NO_COLOR="1")


def test_rich_table_is_fitted_to_the_terminal() -> None:
    rows = [{f"column_{i}": "word " * 5 for i in range(7)}]
    out = run_on_terminal(EMIT.format(data=rows, output="table"), COLUMNS="80", NO_COLOR="1").decode()
    assert max(map(len, out.splitlines())) <= 80
    identity = {"run_id": "demo-swift-otter-7k2q", "status": "Completed"}
    out = run_on_terminal(EMIT.format(data=identity, output="table"), COLUMNS="80", NO_COLOR="1").decode()
    assert out.splitlines() == ["Run ID  demo-swift-otter-7k2q", "Status  Completed"]


@pytest.mark.parametrize("columns", ["1", "20"])
def test_a_narrow_terminal_gets_one_line_per_cell(columns: str) -> None:
    rows = [{"run_id": "demo-swift-otter-7k2q", "status": status} for status in ("Completed", "Failed")]
    out = run_on_terminal(EMIT.format(data=rows, output="table"), COLUMNS=columns, NO_COLOR="1").decode()
    first, second = ([f"Run ID: {row['run_id']}", f"Status: {row['status']}"] for row in rows)
    assert out.splitlines() == [*first, "", *second]  # IDs are not truncated, so that they can be copied
    out = run_on_terminal(EMIT.format(data=rows[0], output="table"), COLUMNS=columns, NO_COLOR="1").decode()
    assert out.splitlines() == first


def test_jsonc_on_a_terminal() -> None:
    data = {"key": 'a "quoted": 5', "n": [1.5, True]}
    out = run_on_terminal(EMIT.format(data=data, output="jsonc")).decode()
    assert '\x1b[34m"key"\x1b[0m: \x1b[32m"a \\"quoted\\": 5"\x1b[0m' in out
    assert "\x1b[36m1.5\x1b[0m" in out and "\x1b[36mtrue\x1b[0m" in out
    assert b"\x1b" not in run_on_terminal(EMIT.format(data=data, output="json"))
    assert b"\x1b" not in run_on_terminal(EMIT.format(data=data, output="jsonc"), NO_COLOR="1")


# --- queries


def test_query(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"run_id": "a", "loss": 0.5}, {"run_id": "b", "loss": 0.25}]
    assert json.loads(emitted(capsys, rows, "json", query="sort_by(@, &loss)[0].run_id")) == "b"
    assert emitted(capsys, tuple(rows), "tsv", query="[].run_id") == "a\nb\n"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("a b", "position 3, near 'b'"),
        ("a[", "position 2"),
        ("[?x=='", "position 6"),
        ("a.#", "position 3, near '#'"),
        ("", "cannot be empty"),
        ("nosuch(@)", "nosuch"),
        ("length(@, @)", "Expected 1 argument"),
        ("length(`1`)", "invalid type"),
        ("[" * 5000, "--query"),
    ],
)
def test_bad_query(query: str, message: str) -> None:
    with pytest.raises(UsageError, match="--query") as caught:
        render.emit([1], output="json", query=query)
    assert message in caught.value.message
    assert caught.value.hint


def test_unknown_format() -> None:
    with pytest.raises(UnknownName, match="table"):
        render.emit([1], output="yaml")


# --- messages


def test_messages_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    render.message("hello")
    render.warn("disk is nearly full")
    render.fail(ConfigError("no such key 'Targt'", "did you mean 'Target'?", path="a.runconfig", line=3))
    render.fail(MlwError(f"host said {HOSTILE}"))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "hello",
        "warning: disk is nearly full",
        "error: a.runconfig:3: no such key 'Targt'",
        "hint: did you mean 'Target'?",
        "error: host said ^[]0;pwned\\x07[red]x[/red]\\x9b2J\\u202e",
        "       forged",
    ]


def test_an_error_for_programs_is_one_line_of_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render, "_errors_as_json", False)
    render.report_errors_as_json()
    render.fail(Unreachable("no contact with\nbüro\x1b", "is it on?"))
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.isascii() and captured.err.count("\n") == 1
    assert json.loads(captured.err) == {
        "error": {
            "code": "unreachable",
            "message": "no contact with\nbüro\x1b",
            "hint": "is it on?",
            "explain": "no-contact",
        }
    }


def test_messages_are_colored_only_on_a_terminal() -> None:
    code = "from mlworkbench.cli import render; render.warn('careful')"
    assert run_on_terminal(code) == b"\x1b[1;33mwarning:\x1b[0m careful\r\n"
    assert run_on_terminal(code, NO_COLOR="1") == b"warning: careful\r\n"


# --- closed streams

IMPORTS = "from mlworkbench.cli import render\nimport os, subprocess, sys\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "body",
    [
        "while True: render.emit(['x' * 100], output='json')",
        "while True: render.write_bytes(b'x' * 100_000)",
        "while True: render.write_bytes(b'x')",
        "while True: print('x' * 20_000, flush=True)",
        "while True: print('x')",
    ],
)
def test_closed_pipe_ends_quietly(body: str, unbuffered: str) -> None:
    code = IMPORTS + f"with render.quiet_pipe():\n    {body}\n"
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert child.stdout and child.stderr
    child.stdout.read(1)
    child.stdout.close()
    assert child.stderr.read() == b""
    assert child.wait(60) == 141
    child.stderr.close()


def test_buffered_text_for_a_closed_pipe_ends_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    result = run_code(IMPORTS + "with render.quiet_pipe(): sys.stdout.write('x')", stdout=writer)
    os.close(writer)
    assert (result.returncode, result.stderr) == (141, b"")


def test_other_broken_pipes_are_errors() -> None:
    result = run_code(IMPORTS + "with render.quiet_pipe(): r, w = os.pipe(); os.close(r); os.write(w, b'x')")
    assert result.returncode == 1 and b"BrokenPipeError" in result.stderr


def test_full_disk_is_an_error() -> None:
    with open("/dev/full", "wb") as full:
        result = run_code(
            IMPORTS + "try: render.emit(1, output='json')\nexcept render.MlwError as e: render.fail(e)",
            stdout=full.fileno(),
        )
    assert result.returncode == 0
    assert result.stderr == b"error: cannot write to standard output: No space left on device\n"


def test_closed_streams_are_ignored() -> None:
    code = (
        IMPORTS + "with render.quiet_pipe(): render.emit(1, output='table'); render.write_bytes(b'x'); render.warn('x')"
    )
    result = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" -c "$1" >&- 2>&-', sys.executable, code], capture_output=True, timeout=60
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


def test_closed_stderr_does_not_stop_the_command() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    code = IMPORTS + "for _ in range(3): render.warn('x')\nrender.emit('done', output='tsv')"
    result = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=writer, timeout=60)
    os.close(writer)
    assert (result.returncode, result.stdout) == (0, b"done\n")


def test_closed_terminal_ends_quietly() -> None:
    master, slave = pty.openpty()
    code = IMPORTS + "sys.stdin.readline()\nwith render.quiet_pipe():\n  while True: render.write_bytes(b'x')"
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=slave,
        stderr=subprocess.PIPE,
    )
    os.close(slave)
    os.close(master)
    _, err = child.communicate(b"\n", timeout=60)
    assert (child.returncode, err) == (141, b"")


# --- progress


def test_progress_without_a_terminal_prints_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    clock = FakeClock(100)
    with render.Progress("snapshot", 1e9, clock=clock) as progress:
        for step in range(300):  # 30 seconds, in steps of 0.1
            clock.now = 100 + step / 10
            progress.update(step * 1e6)
    assert capsys.readouterr().err.splitlines() == [
        "snapshot  5.0 MB of 1.0 GB",
        "snapshot  105 MB of 1.0 GB",
        "snapshot  205 MB of 1.0 GB",
    ]


def test_quick_operations_show_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    clock = FakeClock()
    with render.Progress("snapshot", clock=clock) as progress:
        progress.update(1)
        clock.advance(0.49)
        progress.update(2)
    assert capsys.readouterr().err == ""


def test_small_operations_show_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    clock = FakeClock()
    with render.Progress("snapshot", least=1e6, clock=clock) as progress:
        clock.advance(60)
        progress.report(1000, 14_000)
        assert capsys.readouterr().err == ""
        progress.report(1_000_000, 2_000_000)
    assert capsys.readouterr().err == "snapshot  1.0 MB of 2.0 MB\n"


def test_progress_on_a_terminal_is_one_line() -> None:
    code = """
        from mlworkbench.cli import render
        now = 0.0
        with render.Progress("files", 30, show=lambda n: f"{n:.0f}", clock=lambda: now) as progress:
            for step in range(1, 21):
                now = step / 20
                progress.update(step)
            render.warn("odd")
            now = 2
            progress.update(30)
        render.emit("done", output="tsv")
    """
    out = run_on_terminal(code, NO_COLOR="1")
    assert out.startswith(b"\r\x1b[Kfiles  10 of 30\r\x1b[Kfiles  12 of 30")
    assert out.endswith(b"\r\x1b[Kwarning: odd\r\n\r\x1b[Kfiles  30 of 30\r\x1b[Kdone\r\n")


# --- units


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (99_940, "99.9 kB"),
        (99_960, "100 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (412e6, "412 MB"),
        (1.2e9, "1.2 GB"),
        (3e21, "3000 EB"),
        (-5, "0 B"),
    ],
)
def test_size(count: float, text: str) -> None:
    assert units.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (0.44, "0.4 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (192, "3 min 12 s"),
        (3599.9, "1 h"),
        (3660, "1 h 1 min"),
        (86400, "1 d"),
        (190_000, "2 d 4 h"),
        (-1, "0.0 s"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert units.duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "just now"),
        (0.9, "just now"),
        (1, "1 s ago"),
        (61, "1 min ago"),
        (7300, "2 h ago"),
        (200_000, "2 d ago"),
    ],
)
def test_age(seconds: float, text: str) -> None:
    assert units.age(seconds) == text


# --- import time


def test_no_slow_modules_are_imported() -> None:
    result = run_code(
        """
        import sys
        before = set(sys.modules)
        from mlworkbench.cli import render, terminal_safety
        from mlworkbench.runfiles import secret_masking
        render.emit([{"a": 1}], output="table")
        print(*set(sys.modules) - before, file=sys.stderr)
        """
    )
    loaded = set(result.stderr.decode().split())
    assert "mlworkbench.cli.render" in loaded
    assert not loaded & {"rich", "jmespath", "click", "typing", "dataclasses", "shutil"}
