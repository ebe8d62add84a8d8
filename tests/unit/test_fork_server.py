"""A forked command behaves like the installed program."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import MLW, Process, User, end_processes
from tests.fork_server import is_forkable, start_forked


def _forked(user: User, *words: str) -> Process:
    pipe = subprocess.PIPE
    return start_forked(MLW, words, user.home, user.env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)


def _installed(user: User, *words: str) -> Process:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [str(MLW), *words], cwd=user.home, env=user.env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe
    )


@pytest.mark.parametrize("words", [("--version",), ("history", "lst"), ("project", "show"), ("history", "list")])
def test_the_same_output_and_exit_code(user: User, words: tuple[str, ...]) -> None:
    results = []
    for start in (_forked, _installed):
        process = start(user, *words)
        results.append((*process.communicate(timeout=60), process.returncode))
    assert results[0] == results[1]


@pytest.mark.parametrize("start", [_forked, _installed])
def test_it_runs_in_the_folder_and_with_the_variables_of_the_user(user: User, start: Callable[..., Process]) -> None:
    with start(user, "project", "create", "--name", "one") as process:
        assert process.wait(60) == 0
    assert (user.home / "one" / "aml_config").is_dir()
    with start(user, "history", "list") as process:
        assert process.wait(60) == 0
    assert user.store.is_dir()


@pytest.mark.parametrize("start", [_forked, _installed])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(user: User, start: Callable[..., Process], number: int) -> None:
    project = user.project(train="import time\nprint('up', flush=True)\ntime.sleep(60)\n")
    user.home = project
    with start(user, "submit", "-c", "local", "train.py") as process:
        assert process.poll() is None
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        process.send_signal(number)
        assert process.wait(60) == -number


@pytest.mark.parametrize("name", ["PYTHONPATH", "PYTHONSAFEPATH", "LD_PRELOAD", "LC_ALL"])
def test_what_a_python_reads_at_its_start_needs_the_installed_program(user: User, name: str) -> None:
    assert is_forkable({**user.env, "PYTHON_KEYRING_BACKEND": "x"})
    assert not is_forkable({**user.env, name: "x"})


def test_output_that_is_not_read_in_time_is_an_error(user: User) -> None:
    project = user.project(train="import time\ntime.sleep(60)\n")
    user.home = project
    process: Any = _forked(user, "submit", "-c", "local", "train.py")
    with pytest.raises(subprocess.TimeoutExpired):
        process.communicate(timeout=0.5)
    process.kill()
    assert process.wait(60) == -signal.SIGKILL


def test_what_a_test_left_is_ended_with_it(user: User) -> None:
    user.home = user.project(train="import time\ntime.sleep(60)\n")
    process: Any = _forked(user, "submit", "-c", "local", "train.py")
    end_processes(user.store)
    assert process.returncode == -signal.SIGKILL and process.stdout.closed and process.stderr.closed
