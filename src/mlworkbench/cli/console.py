"""The command line as the caller of a submission."""

from __future__ import annotations

from ..inferred_state import INTERRUPTED
from ..model import Run
from ..runs.frontend import Frontend
from ..submission import Draft
from . import render
from .misplaced import misplaced


class Console(Frontend):
    """Writes to stderr, and asks for secrets on a terminal."""

    prompts = True

    def message(self, text: str) -> None:
        render.message(text)

    def warning(self, text: str) -> None:
        render.warn(text)

    def progress(self, label: str, least: float = 0) -> render.Progress:
        return render.Progress(label, least=least)

    def planned(self, draft: Draft) -> None:
        super().planned(draft)
        hint = misplaced(draft.parts.project.root, draft.spec.entry)
        if hint:
            render.message(f"hint: {hint}")

    def detached(self, run: Run) -> None:
        if run.status.final:
            return
        if run.detail == INTERRUPTED or run.accepted is None:
            render.message(f"\nrun {run.id} was not started; start it with 'mlw experiment resume {run.id}'")
            return
        render.message(f"\ndetached; run {run.id} continues")
        hint_back(run)


def hint_back(run: Run) -> None:
    """Print how to follow and how to cancel the run."""
    render.message(f"  follow: mlw logs -f {run.id}")
    render.message(f"  cancel: mlw cancel {run.id}")
