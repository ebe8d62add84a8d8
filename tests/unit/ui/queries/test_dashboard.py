"""What the dashboard says, in words."""

from __future__ import annotations

from mlworkbench.ui.answers import dashboard


def test_run_says_what_it_saves_first() -> None:
    assert dashboard.unsaved([]) == ""
    assert dashboard.unsaved(["train.py"]) == "Run saves 1 file first: train.py"
    assert dashboard.unsaved(["b.py", "a.py"]) == "Run saves 2 files first: a.py, b.py"
    assert dashboard.unsaved(list("abcdef")).endswith("a, b, c, d, …")
