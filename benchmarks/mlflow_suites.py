"""Run MLflow's own tests on its SQLite store, its file store, and the store of mlw.

``python benchmarks/mlflow_suites.py CHECKOUT PYTHON [STORE …]`` → results/mlflow_suites.md. CHECKOUT is a clone of
MLflow at the version that PYTHON has. PYTHON also needs pytest, pytest-asyncio, pytest-timeout, and polars. With stores
(sqlite, file, mlw), only these run; the outcomes of the others are those of their last run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import machine
from context import CACHE, REPOSITORY

RESULTS = Path(__file__).resolve().parent / "results" / "mlflow_suites.md"
KEPT = CACHE / "mlflow-suites"
PATHS = (Path(__file__).resolve().parent, REPOSITORY / "src" / "mlworkbench" / "remote" / "inrun")
STORES = {"sqlite": "MLflow's SQLite store", "file": "MLflow's file store", "mlw": "mlw"}
_STORE_TESTS = "tests/store/tracking/sqlalchemy_store/test_sqlalchemy_store_"
SUITES = {
    "client": [
        "tests/tracking/test_tracking.py",
        "tests/tracking/fluent/test_fluent.py",
        "tests/tracking/test_log_image.py",
    ],
    "store": [f"{_STORE_TESTS}{name}.py" for name in ("core", "experiments", "runs")],
    "genai": [f"{_STORE_TESTS}{name}.py" for name in ("assessments", "eval_datasets", "scorers", "traces")],
}
# Why a test fails with the store of mlw: a pattern in its name or in the message, and the reason.
REASONS = (
    (r"log_null_param|run_needs_uuid", "expects an error text of a database for values that the client never sends"),
    (r"_search_datasets", "needs a query that only the pages of MLflow's server use"),
    (r"_hard_delete_run|_get_deleted_runs", "needs what only `mlflow gc` uses"),
    (r"supports_window_functions|python_fallback|'db_type'", "tests how queries depend on the type of the database"),
    (r"GatewayEndpoint|_get_decrypted_secret", "replaces or calls methods for the gateway of MLflow's server"),
    (r"trace_archival", "needs the archive of traces, which only MLflow's server has"),
    (r"retries_on_deadlock", "replaces sessions of the database"),
    (r"log_batch_internal_error|_log_metrics|attribute '_", "replaces or calls internal methods of MLflow's SQL store"),
    (
        r"log_batch_\w*(repeated|duplicate)",
        "expects that a point that is logged twice is dropped. mlw keeps it, as the "
        "file store does: a fast loop logs the same value several times in a millisecond",
    ),
    (r"test_search_attrs", "expects the ID of the run in its artifact location. The first run uses `outputs/`"),
    (r"ManagedSessionMaker|'engine'|'db_uri'|_get_dialect", "reads or changes tables of the database itself"),
    (r"ModuleNotFoundError", "needs a package that is not installed"),
)


def main() -> None:
    checkout, python = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).absolute()
    KEPT.mkdir(parents=True, exist_ok=True)
    for store in sys.argv[3:] or STORES:
        for suite in SUITES:
            _run(checkout, python, suite, store)
    results = {(suite, store): _outcomes(suite, store) for suite in SUITES for store in STORES}
    version = subprocess.run(
        [python, "-c", "import mlflow; print(mlflow.__version__)"], capture_output=True, text=True, check=True
    )
    RESULTS.write_text(_page(version.stdout.strip(), results))


Outcomes = dict[str, tuple[str, str]]  # name of a test -> outcome and message


def _file(suite: str, store: str) -> Path:
    return KEPT / f"{suite}-{store}.jsonl"


def _run(checkout: Path, python: Path, suite: str, store: str) -> None:
    file = _file(suite, store)
    file.unlink(missing_ok=True)
    scratch = tempfile.mkdtemp(dir=KEPT)
    environment = machine.environment(
        MLW_SUITE_STORE=store,
        MLW_SUITE_RESULTS=str(file),
        MLFLOW_ALLOW_FILE_STORE="true",
        TMPDIR=scratch,
        PYTHONPATH=os.pathsep.join(map(str, PATHS)),
    )
    options = ["-q", "-p", "mlflow_suite_plugin", "-p", "no:cacheprovider", "--timeout", "600"]
    argv = [str(python), "-m", "pytest", *options, *SUITES[suite]]
    done = subprocess.run(argv, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    shutil.rmtree(scratch)
    if not file.exists():
        raise SystemExit(f"error: no test of {suite} ran\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    print(suite, store, _counts(_outcomes(suite, store)), flush=True)


def _outcomes(suite: str, store: str) -> Outcomes:
    file = _file(suite, store)
    lines = map(json.loads, file.read_text().splitlines()) if file.exists() else ()
    return {line["test"]: (line["outcome"], line["reason"]) for line in lines}


def _page(version: str, results: dict[tuple[str, str], Outcomes]) -> str:
    lines = [
        "# MLflow's own tests on three stores",
        "",
        "Made by `python benchmarks/mlflow_suites.py CHECKOUT PYTHON`; not edited by hand.",
        "",
        *(f"- {fact}" for fact in machine.facts(KEPT)),
        f"- mlflow {version}; tests that use the store, without MLflow's workspaces, which only its server has",
        *(f"- {suite}: {', '.join(f'`{name}`' for name in files)}" for suite, files in SUITES.items()),
        "",
        "| tests | " + " | ".join(STORES.values()) + " |",
        "| --- |" + " --- |" * len(STORES),
        *(f"| {suite} | " + " | ".join(_counts(results[suite, store]) for store in STORES) + " |" for suite in SUITES),
        "",
        "## Tests that fail with the store of mlw",
        "",
        "| reason | tests |",
        "| --- | --- |",
    ]
    reasons = defaultdict(list)
    for suite in SUITES:
        for name, (outcome, message) in results[suite, "mlw"].items():
            if outcome == "failed":
                also = " (also with SQLite)" if results[suite, "sqlite"].get(name, ("",))[0] == "failed" else ""
                title = name.rpartition("::")[2].replace("workspace-disabled-", "")
                reasons[_reason(name, message)].append(f"`{title}`{also}")
    lines += [
        f"| {reason} | {', '.join(names).replace('[workspace-disabled]', '')} |" for reason, names in reasons.items()
    ]
    return "\n".join(lines) + "\n"


def _counts(outcomes: Outcomes) -> str:
    counts = Counter(outcome for outcome, _ in outcomes.values())
    return f"{counts['passed']} of {counts['passed'] + counts['failed']}"


def _reason(name: str, message: str) -> str:
    known = (reason for pattern, reason in REASONS if re.search(pattern, f"{name} {message}"))
    return next(known, f"**unexplained**: {message[:200]}".replace("\n", " ").replace("|", "/"))


if __name__ == "__main__":
    main()
