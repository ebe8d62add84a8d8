"""`make fuzz`: a long campaign over all surfaces. Crashing inputs go to build/fuzz; copy them to tests/fuzz/crashes.

Case numbers continue where the last campaign with the same seed stopped, unless --first is given.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

from mlworkbench.version import __version__
from tests.fuzz.campaign import Outcome, Surface, run, working_folder
from tests.fuzz.surfaces import SURFACES

ROOT = Path(__file__).parents[2]
_STEP = 500


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("--cases", type=int, default=1_000_000, help="cases of all surfaces together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, help="number of the first case of each surface")
    parser.add_argument("--surface", action="append", choices=[candidate.name for candidate in SURFACES])
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "fuzz", help="for crashing inputs and numbers")
    parser.add_argument("--report", type=Path, help="write a summary in Markdown")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    surfaces = [candidate for candidate in SURFACES if not options.surface or candidate.name in options.surface]
    begun, total = time.monotonic(), sum(candidate.share for candidate in surfaces)
    outcomes: dict[str, Outcome] = {}
    for surface in surfaces:
        outcomes[surface.name] = _campaign(surface, options, int(options.cases * surface.share / total) + 1)
    text = _report(outcomes, options.seed, time.monotonic() - begun)
    print(text)
    if options.report:
        options.report.write_text(text, encoding="utf-8")
    return 1 if any(outcome.findings for outcome in outcomes.values()) else 0


def _campaign(surface: Surface, options: argparse.Namespace, count: int) -> Outcome:
    state = options.folder / f"{surface.name}.{options.seed}.json"
    first = options.first
    if first is None:
        first = json.loads(state.read_text())["next"] if state.exists() else 0
    outcome, begun = Outcome(), time.monotonic()
    for start in range(first, first + count, _STEP):
        with working_folder() as folder:
            part = run(surface, options.seed, range(start, min(start + _STEP, first + count)), folder)
        outcome.cases += part.cases
        outcome.refused += part.refused
        for kind, finding in part.findings.items():
            if kind not in outcome.findings:
                outcome.findings[kind] = finding
                (options.folder / finding.file).write_bytes(finding.case)
                print(
                    f"CRASH {surface.name} {finding.place} {finding.error} -> {options.folder / finding.file}",
                    flush=True,
                )
        state.write_text(json.dumps({"next": start + part.cases, "findings": len(outcome.findings)}))
    print(f"{surface.name}: {outcome.cases:,} cases in {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    return outcome


def _report(outcomes: dict[str, Outcome], seed: int, seconds: float) -> str:
    rows = [
        f"| {name} | {outcome.cases:,} | {outcome.refused:,} | {len(outcome.findings)} |"
        for name, outcome in sorted(outcomes.items())
    ]
    cases = sum(outcome.cases for outcome in outcomes.values())
    crashes = sum(len(outcome.findings) for outcome in outcomes.values())
    where = f"Python {platform.python_version()}, {platform.system()}, {os.cpu_count()} cores"
    return "\n".join(
        [
            f"# Fuzzing, version {__version__}",
            "",
            f"{cases:,} cases with seed {seed} in {seconds:.0f} s ({where}); {crashes} uncaught exceptions.",
            "",
            "| surface | cases | refused in a sentence | uncaught |",
            "| --- | --: | --: | --: |",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
