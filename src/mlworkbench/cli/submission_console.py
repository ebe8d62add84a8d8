"""Command-line front end for submitting runs."""

from __future__ import annotations

from ..inferred_state import INTERRUPTED, has_started
from ..model import Run
from ..runs.submission_frontend import Frontend
from ..submission import Draft
from . import render
from .misplaced_options import misplaced_option_hint


class Console(Frontend):
    """Front end that writes messages to stderr and prompts for secrets on a terminal."""

    prompts = True

    def message(self, text: str) -> None:
        render.message(text)

    def warning(self, text: str) -> None:
        render.warn(text)

    def progress(self, label: str, least: float = 0) -> render.Progress:
        return render.Progress(label, least=least)

    def planned(self, draft: Draft) -> None:
        super().planned(draft)
        hint = misplaced_option_hint(draft.parts.project.root, draft.spec.entry)
        if hint:
            render.message(f"hint: {hint}")

    def detached(self, run: Run) -> None:
        if run.status.final:
            return
        if run.detail == INTERRUPTED or not has_started(run):
            render.message(f"\nrun {run.id} was not started; start it with 'mlw experiment resume {run.id}'")
            return
        render.message(f"\ndetached; run {run.id} continues")
        print_follow_hints(run)


def print_follow_hints(run: Run) -> None:
    """Print the commands for following and canceling the run."""
    render.message(f"  follow: mlw logs -f {run.id}")
    render.message(f"  cancel: mlw cancel {run.id}")
