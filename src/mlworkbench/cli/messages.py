"""Messages that several commands print."""

from __future__ import annotations

NO_RUNS, SUBMIT_HINT = "no runs yet", "start one with 'mlw submit SCRIPT'"
