"""The log on the screen and in the file: unchanged bytes, resumable, safe for terminals."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys

import pexpect
import pytest

from tests.conftest import MLW
from tests.supervisor.conftest import until

BINARY = r"""
import os, sys
out = sys.stdout.buffer
out.write(bytes(range(256)) * 50 + b'\r\n\x1b[31mred\x1b[0m\x1b]0;title\x07\xff\xfe no newline at the end')
"""
EVIL = r"""
import sys
sys.stdout.write('\x1b[32mgreen\x1b[0m \x1b]52;c;cm0gLXJm\x07 \x1b[2J\x1b[H \x1b]0;owned\x07 \x9b31m')
sys.stdout.write('\nprogress 10%\rprogress 99%\n')
"""


def on_a_terminal(user, *arguments, cwd, **more):
    env = {**user.env, "TERM": "xterm-256color"}
    return pexpect.spawn(str(MLW), list(arguments), cwd=str(cwd), env=env, timeout=60, echo=False, **more)


def test_log_is_byte_exact(user):
    project = user.project("demo", train=BINARY)
    done = user.mlw("submit", "train.py", cwd=project)
    expected = bytes(range(256)) * 50 + b"\r\n\x1b[31mred\x1b[0m\x1b]0;title\x07\xff\xfe no newline at the end"
    assert done.stdout == expected
    assert (user.folder(done.run) / "log").read_bytes() == expected
    assert user.mlw("logs", done.run, cwd=project).stdout == expected


def test_stdout_and_stderr_keep_their_order(user):
    project = user.project(
        "demo",
        train="import os\nfor n in range(2000): os.write(1 + n % 2, b'%d\\n' % n)",
    )
    assert user.mlw("submit", "train.py", cwd=project).out.split() == [str(n) for n in range(2000)]


def test_terminal_escapes_are_escaped_and_colors_pass(user):
    project = user.project("demo", train=EVIL)
    screen = on_a_terminal(user, "submit", "train.py", cwd=project)
    screen.expect(pexpect.EOF)
    output = screen.before
    assert b"\x1b[32mgreen\x1b[0m" in output
    assert b"progress 10%\rprogress 99%" in output
    rest = re.sub(rb"\x1b\[[0-9;]*m", b"", output)
    assert b"\x1b" not in rest
    assert b"\x07" not in rest
    assert b"\xc2\x9b" not in rest
    assert b"]52;c;cm0gLXJm" in rest, "shown, not executed"


def test_ctrl_c_detaches_and_prints_follow_command(user):
    project = user.project(
        "demo", train="import time\nprint('up')\nfor n in range(100000): print('tick', n); time.sleep(0.02)"
    )
    screen = on_a_terminal(user, "submit", "train.py", cwd=project)
    screen.expect("tick 5")
    screen.sendintr()
    screen.expect(r"detached; run (\S+) continues")
    run = screen.match.group(1).decode()
    screen.expect(f"follow: mlw logs -f {run}")
    screen.expect(f"cancel: +mlw cancel {run}")
    screen.expect(pexpect.EOF)
    screen.close()
    assert screen.signalstatus == 2, "a loop in a shell ends only if it dies of the signal"
    log = user.folder(run) / "log"
    size = log.stat().st_size
    until(lambda: log.stat().st_size > size)  # the run continues
    screen = on_a_terminal(user, "logs", "-f", run, cwd=project)
    screen.expect("up")
    screen.expect("tick 5")
    screen.sendintr()
    screen.expect("continues")
    assert user.info(run)["status"] == "Running"
    user.mlw("cancel", run, cwd=project)
    assert user.info(run)["status"] == "Canceled"


def test_closed_terminal_ends_only_the_client(user):
    project = user.project("demo", train="import time\nwhile True: print('tick'); time.sleep(0.02)")
    screen = on_a_terminal(user, "submit", "train.py", cwd=project)
    screen.expect(r"RunId: (\S+)")
    run = screen.match.group(1).decode()
    screen.expect("tick")
    screen.close(force=True)
    log = user.folder(run) / "log"
    size = log.stat().st_size
    until(lambda: log.stat().st_size > size)
    assert user.mlw("cancel", run).code == 0


def test_closed_pipe(user):
    project = user.project("demo", train="for n in range(200000): print(n)")
    done = user.mlw("submit", "train.py", cwd=project)
    pipe = subprocess.Popen([str(MLW), "logs", done.run], env=user.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert pipe.stdout.readline() == b"0\n"
    pipe.stdout.close()
    assert pipe.stderr.read() == b""
    pipe.stderr.close()
    assert pipe.wait() == 141


def test_killed_followers_and_supervisor_change_nothing(user):
    """The log is complete, whichever local process is killed."""
    script = "import os, time\nfor n in range(400):\n  print(n, 'x' * 50); time.sleep(0.005)"
    project = user.project("demo", train=script)
    first = user.start("submit", "train.py", cwd=project)
    run = re.search(rb"RunId: (\S+)", first.stderr.readline()).group(1).decode()
    assert first.stdout.readline().startswith(b"0 ")
    first.kill()
    for kind in ("follower", "supervisor", "follower"):
        follower = user.start("logs", "-f", run, cwd=project)
        assert follower.stdout.readline().startswith(b"0 ")
        if kind == "supervisor":
            events = [json.loads(line) for line in (user.folder(run) / "events.jsonl").read_text().splitlines()]
            os.kill(events[0]["data"]["pid"], signal.SIGKILL)
        follower.kill()
        follower.communicate()
    first.communicate()
    last = user.mlw("logs", "-f", run, cwd=project)
    assert last.code == 0, last
    assert last.out.splitlines() == [f"{n} {'x' * 50}" for n in range(400)]
    assert hashlib.sha256(last.stdout).digest() == hashlib.sha256((user.folder(run) / "log").read_bytes()).digest()


def test_follow_large_log_with_little_memory(user):
    project = user.project(
        "demo", train="import os\nb = b'y' * 99 + b'\\n'\nfor n in range(300): os.write(1, b * 10000)"
    )
    done = user.mlw("submit", "--detach", "train.py", cwd=project)
    # Measure from a small process, because a child starts with the memory of its parent, here pytest.
    measure = "import os, resource, subprocess, sys; done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL);"
    measure += "print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    command = [sys.executable, "-I", "-S", "-c", measure, str(MLW), "logs", "-f", done.run]
    output = subprocess.run(command, cwd=project, env=user.env, capture_output=True, timeout=120).stdout.split()
    code, memory = int(output[0]), int(output[1])
    assert code == 0
    assert (user.folder(done.run) / "log").stat().st_size == 300_000_000
    assert memory < 100 * 1024, f"{memory} kB"


@pytest.mark.parametrize("where", ["terminal", "pipe"])
def test_follow_long_line(user, where):
    project = user.project("demo", train="import sys\nfor n in range(20): sys.stdout.write('z' * 1000000)")
    if where == "pipe":
        assert user.mlw("submit", "train.py", cwd=project).stdout == b"z" * 20_000_000
        return
    screen = on_a_terminal(user, "submit", "train.py", cwd=project, maxread=1 << 20)
    screen.expect("Status: +Completed", searchwindowsize=1000)
