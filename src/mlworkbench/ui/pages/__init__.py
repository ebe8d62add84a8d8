"""Pages, one module each. They show results from the backend and contain no business logic."""

from __future__ import annotations

from ..backend import Backend
from . import compare, error_pages, files, project, projects, run, runs, targets, terminal

_PAGES = (projects, project, files, targets, terminal, runs, run, compare, error_pages)


def register(backend: Backend) -> None:
    """Register all pages."""
    for page in _PAGES:
        page.register(backend)
