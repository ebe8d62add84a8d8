"""Messages that several commands print."""

from __future__ import annotations

NO_RUNS, SUBMIT_ONE = "no runs yet", "start one with 'mlw submit SCRIPT'"
