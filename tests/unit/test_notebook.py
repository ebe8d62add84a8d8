"""The magic ``%mlw``, with stand-ins for IPython and for the commands that it starts."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from mlworkbench import notebook
from mlworkbench.environments.notebook_python import IS_UNSAVED, KERNEL_NOTEBOOK

PRINT = f"import os; print(*map(os.environ.get, ({KERNEL_NOTEBOOK!r}, {IS_UNSAVED!r})))"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the notebook from which ``%mlw`` is called."""
    path = tmp_path / "train.ipynb"
    path.write_text(json.dumps({"cells": [{"source": ["%mlw submit"]}]}))
    shell = SimpleNamespace(
        user_ns={"__vsc_ipynb_file__": str(path)}, history_manager=SimpleNamespace(input_hist_raw=["%mlw submit"])
    )
    ipython, error = ModuleType("IPython"), ModuleType("IPython.core.error")
    ipython.get_ipython = lambda: shell
    error.UsageError = RuntimeError
    for name, module in {"IPython": ipython, "IPython.core": ModuleType("IPython.core"), error.__name__: error}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(notebook, "own_command", lambda arguments: [sys.executable, "-ISc", PRINT])
    return path


@pytest.mark.parametrize("line", ["submit", "experiment submit -c local"])
def test_submit_has_the_path_of_the_notebook(file, line, capsys):
    notebook.mlw(line)
    assert capsys.readouterr().out == f"{file} \n"


@pytest.mark.parametrize("line", ["ui", "ps", "logs submit-run"])
def test_other_commands_do_not_have_it(file, line, capsys):
    """``mlw ui`` would otherwise pass it to each submission from the browser."""
    notebook.mlw(line)
    assert capsys.readouterr().out == "None None\n"


def test_notebook_that_is_removed_at_this_moment(file, monkeypatch, capsys):
    monkeypatch.setattr(os.path, "isfile", lambda path: True)
    file.unlink()
    notebook.mlw("submit")
    assert capsys.readouterr().out == f"{file} None\n"
