"""Messages of the dashboard."""

from __future__ import annotations

from mlworkbench.ui.queries import dashboard


def test_unsaved_message() -> None:
    assert dashboard.unsaved_message([]) == ""
    assert dashboard.unsaved_message(["train.py"]) == "Run saves 1 file first: train.py"
    assert dashboard.unsaved_message(["b.py", "a.py"]) == "Run saves 2 files first: a.py, b.py"
    assert dashboard.unsaved_message(list("abcdef")).endswith("a, b, c, d, …")
