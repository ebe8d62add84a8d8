"""``make bench``: all measurements in one run on one machine, with a table for each subject under results/.

A subject is a results file. It consists of sections, each a function of a module in this folder. To add a
figure, add a section; to add a subject, add a line to SUBJECTS. A file is written after all its sections are measured.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import machine
from browsing import lacks
from context import CACHE, Context
from environments import cold_section, import_section, second_section, warm_section
from exporting import export_section
from following import delay_section, throughput_section
from footprint import SECTIONS as INSTALL_SECTIONS
from history import history_section
from idle import idle_section
from recording import recording_section
from remote_laptop import missing
from remote_runs import remote_first_line_section, remote_log_section, upload_section
from resubmit import resubmit_section
from search import search_section
from spark import SECTIONS as SPARK_SECTIONS
from spark import lacks as lacks_java
from stages import stages_section
from startup import first_line_section, help_section
from table import Section, page
from tracked import series_section
from ui import SECTIONS as UI_SECTIONS

RESULTS = Path(__file__).resolve().parent / "results"
SUBJECTS: dict[str, tuple[str, dict[str, Callable[[Context], Section]]]] = {
    "engine": (
        "The run engine, measured",
        {
            "help": help_section,
            "first-line": first_line_section,
            "stages": stages_section,
            "resubmit": resubmit_section,
            "throughput": throughput_section,
            "delay": delay_section,
            "idle": idle_section,
        },
    ),
    "history": ("The history, measured", {"history": history_section}),
    "tracking": (
        "Tracking, measured",
        {"recording": recording_section, "series": series_section},
    ),
    "export": ("Exports, measured", {"export": export_section}),
    "search": ("Searches among many runs, measured", {"search": search_section}),
    "ui": ("The Workbench in the browser, measured", UI_SECTIONS),
    "elsewhere": (
        "Runs on another machine, measured",
        {"away-first-line": remote_first_line_section, "away-upload": upload_section, "away-log": remote_log_section},
    ),
    "environments": (
        "Environments, measured",
        {
            "env-cold": cold_section,
            "env-warm": warm_section,
            "env-second": second_section,
            "env-import": import_section,
        },
    ),
    "spark": ("Spark, measured", SPARK_SECTIONS),
    "install": ("Installing and starting, measured", INSTALL_SECTIONS),
}

_LACKS = {"elsewhere": missing, "ui": lacks, "spark": lacks_java}


def main() -> int:
    options = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # raises SystemExit, so the scratch folders are removed
    context = Context.make(options.quick, options.slow, options.patience)
    try:
        for subject, (title, sections) in SUBJECTS.items():
            chosen = {name: make for name, make in sections.items() if not options.only or name in options.only}
            absent = _LACKS[subject]() if chosen and subject in _LACKS else ""
            if absent:
                print(f"{subject}: not measured, for this is missing: {absent} (scripts/test-tools installs it)")
            elif chosen:
                text = _measure(context, title, chosen)
                print("\n" + text)
                if len(chosen) == len(sections):
                    RESULTS.mkdir(exist_ok=True)
                    (RESULTS / f"{subject}.md").write_text(text, encoding="utf-8")
    finally:
        context.remove()
    return 0


def _arguments() -> argparse.Namespace:
    names = [name for _, sections in SUBJECTS.values() for name in sections]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="*", metavar="SECTION", help=f"only these: {', '.join(names)}")
    parser.add_argument("--quick", type=int, default=21, help="rounds of what takes less than a second (%(default)s)")
    parser.add_argument("--slow", type=int, default=7, help="rounds of the rest (%(default)s)")
    parser.add_argument(
        "--patience", type=float, default=120, help="seconds to wait for quiet, in each section (%(default)s)"
    )
    options = parser.parse_args()
    unknown = set(options.only).difference(names)
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return options


def _measure(context: Context, title: str, chosen: dict[str, Callable[[Context], Section]]) -> str:
    facts = [*machine.facts(CACHE), f"load average at the start: {machine.load()}"]
    done = []
    for name, make in chosen.items():
        began = time.monotonic()
        print(f"{name} …", end=" ", flush=True)
        section = make(context)
        context.settle()
        section.notes[0] += f", after: {machine.load()}"
        done.append(section)
        print(f"{time.monotonic() - began:.0f} s", flush=True)
    return page(title, facts, done)


if __name__ == "__main__":
    sys.exit(main())
