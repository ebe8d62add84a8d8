"""Run MLflow's own examples, unmodified, without mlw and with it, and compare what MLflow has of them afterwards.

``python benchmarks/mlflow_examples.py CHECKOUT PYTHON [NAME …]`` → results/mlflow_examples.md. CHECKOUT is a clone of
MLflow at the version that PYTHON has. With names, only the rows of these examples change.

Each example runs in its folder with MLflow's default store, and with ``mlw submit -c local``. If the results differ, it
runs without mlw once more: a value that differs there, too, is random.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machine
from context import CACHE, MLW, REPOSITORY

RESULTS = Path(__file__).resolve().parent / "results" / "mlflow_examples.md"
READER = Path(__file__).resolve().parent / "mlflow_run_reader.py"
IN_RUN = REPOSITORY / "src" / "mlworkbench" / "remote" / "inrun"
LIMIT = 600  # seconds
# The examples that need no server, download, key, or GPU, and that work with current packages. Names are paths below
# examples/, with arguments.
EXAMPLES = (
    "catboost/train.py",
    "demos/mlflow-3/ml.py",
    "docker/train.py --alpha 0.5 --l1-ratio 0.1",
    "evaluation/evaluate_on_regressor.py",
    "evaluation/evaluate_with_custom_metrics.py",
    "evaluation/evaluate_with_custom_metrics_comprehensive.py",
    "lightgbm/lightgbm_native/train.py",
    "lightgbm/lightgbm_sklearn/train.py",
    "mlflow-3/evaluate_example.py",
    "mlflow-3/load_model_from_runs_uri.py",
    "mlflow-3/register_model.py",
    "mlflow-3/sklearn_autolog.py",
    "model_config/simple.py",
    "pip_requirements/pip_requirements.py",
    "pmdarima/train.py",
    "pyfunc/custom_code.py",
    "pyfunc/infer_model_code_paths.py",
    "pyfunc/train.py",
    "pytorch/CaptumExample/Titanic_Captum_Interpret.py",
    "pytorch/torchscript/IrisClassification/iris_classification.py",
    "quickstart/mlflow_tracking.py",
    "shap/binary_classification.py",
    "shap/explainer_logging.py",
    "shap/multiclass_classification.py",
    "shap/regression.py",
    "sklearn_autolog/grid_search_cv.py",
    "sklearn_autolog/linear_regression.py",
    "sklearn_autolog/pipeline.py",
    "sklearn_elasticnet_diabetes/linux/train_diabetes.py",
    "sklearn_logistic_regression/train.py",
    "sktime/train.py",
    "spacy/train.py",
    "statsmodels/train.py",
    "supply_chain_security/train.py",
    "system_metrics/collect_system_metrics.py",
    "tensorflow/train.py",
    "tracing/client.py",
    "tracing/fluent.py",
    "uv-dependency-management/log_model.py",
    "virtualenv/project/entrypoint.py",
    "xgboost/xgboost_native/train.py",
    "xgboost/xgboost_sklearn/train.py",
)


Places = dict[tuple[str, ...], str]


@dataclass(frozen=True)
class Execution:
    """An execution in its folder, and the runs that the history of mlw shows for it."""

    code: int
    output: str
    folder: Path
    shown: list[dict[str, Any]]


@dataclass(frozen=True)
class Comparison:
    name: str
    data: dict[str, Any]  # what MLflow has without mlw
    differences: list[str]
    random: int  # number of values that also differ between two executions without mlw
    failed: bool = False

    def row(self) -> str:
        data = self.data
        runs = data.get("runs", {}).values()
        counts = [len(runs), sum(metric["points"] for run in runs for metric in run["metrics"].values())]
        counts += [sum(len(run[field]) for run in runs) for field in ("params", "tags", "datasets", "artifacts")]
        counts += [len(data.get("models", ())), len(data.get("traces", ())), self.random]
        result = "the same" if not self.differences else "**" + "; ".join(self.differences[:6]) + "**"
        return "| " + " | ".join([f"`{self.name}`", *map(str, counts), result]) + " |"


class Bench:
    def __init__(self, checkout: Path, python: Path) -> None:
        self.examples, self.python = checkout / "examples", python
        CACHE.mkdir(parents=True, exist_ok=True)
        self.scratch = Path(tempfile.mkdtemp(prefix="examples-", dir=CACHE))
        quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "MPLBACKEND": "agg"}
        quiet["MLFLOW_REQUIREMENTS_INFERENCE_TIMEOUT"] = "1"
        self.environment = machine.environment(MLW_HOME=str(self.scratch / "home"), **quiet)
        self._read(self.scratch, "sqlite:///mlflow.db")  # creating the tables takes seconds: examples get copies

    def compare(self, name: str) -> Comparison:
        plain, submitted = self.plain(name, "plain"), self.submitted(name)
        before, after = self._read_both(plain, submitted)
        if plain.code:
            return Comparison(name, before, [f"fails without mlw: {_last_line(plain.output)}"], 0, failed=True)
        differences = dict(_differences(before, after))
        random: Places = {}
        if differences:
            again = self.plain(name, "again")
            random = dict(_differences(before, *self._read(again.folder, "sqlite:///mlflow.db")))
        texts = [text for place, text in differences.items() if place not in random]
        if submitted.code:
            texts.insert(0, f"exit code {submitted.code}: {_last_line(submitted.output)}")
        texts += _history_differences(after, submitted.shown)
        return Comparison(name, before, texts, len(differences.keys() & random.keys()))

    def _read_both(self, plain: Execution, submitted: Execution) -> list[dict[str, Any]]:
        more = {"MLW_RUN_FOLDER": str(submitted.folder), "PYTHONPATH": str(IN_RUN)}
        return self._read(plain.folder, "sqlite:///mlflow.db", "mlw:run", **more)

    def plain(self, name: str, kind: str) -> Execution:
        script, *arguments = shlex.split(name)
        folder = self._copy(script, kind)
        shutil.copy(self.scratch / "mlflow.db", folder)
        done = self._call([self.python, Path(script).name, *arguments], folder)
        return Execution(done.returncode, done.stdout + done.stderr, folder, [])

    def submitted(self, name: str) -> Execution:
        script, *arguments = shlex.split(name)
        folder = self._copy(script, "submitted")
        project = ("project", "create", "--name", "examples", "--path", str(folder.parent / "project"))
        self._call([MLW, *project], folder.parent)
        shutil.copytree(folder.parent / "project" / "examples" / "aml_config", folder / "aml_config")
        with open(folder / "aml_config" / "local.compute", "a") as file:
            file.write(f"\npythonLocation: {self.python}\n")
        done = self._call([MLW, "submit", "-c", "local", Path(script).name, *arguments], folder)
        shown = json.loads(self._call([MLW, "show", "-o", "json"], folder).stdout)
        listing = [MLW, "history", "list", "--children", "-o", "json"]  # the project has only this run
        runs = json.loads(self._call(listing, folder).stdout)
        run = self.scratch / "home" / "runs" / shown["run_id"]
        return Execution(done.returncode, done.stdout + done.stderr, run, runs)

    def _copy(self, script: str, kind: str) -> Path:
        shutil.rmtree(self.scratch / kind, ignore_errors=True)
        place = self.scratch / kind / script.replace("/", "-")
        source = (self.examples / script).parent
        shutil.copytree(source, place / source.name)
        return place / source.name

    def _read(self, folder: Path, *addresses: str, **more: str) -> list[dict[str, Any]]:
        done = self._call([self.python, READER, *addresses], folder, **more)
        if done.returncode:
            return [{"error": _last_line(done.stderr)} for _ in addresses]
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"experiments"')]

    def _call(self, argv: list[Any], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {**self.environment, **more}
        try:
            return subprocess.run(
                [str(word) for word in argv],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(argv, 124, "", f"still running after {LIMIT} s")


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no output"])[-1][:160]


def _differences(before: Any, after: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each place in two nested values whose content differs, with a description."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            if name not in after or name not in before:
                yield (*place, name), f"{'/'.join((*place, name))}: {'missing' if name in before else 'additional'}"
            else:
                yield from _differences(before[name], after[name], (*place, name))
    elif before != after and not (before != before and after != after):  # NaN
        yield place, f"{'/'.join(place)}: {str(before)[:60]} → {str(after)[:60]}"


def _history_differences(data: dict[str, Any], runs: list[dict[str, Any]]) -> list[str]:
    """Return the runs of MLflow whose parameters or metrics the history does not show."""
    missing = Counter(map(_values, data.get("runs", {}).values())) - Counter(map(_shown_values, runs))
    return [f"not in the history: {values[:100]}" for values in missing]


def _values(run: dict[str, Any]) -> str:
    metrics = {name: f"{metric['last']:.12g}" for name, metric in run["metrics"].items()}
    return json.dumps([run["params"], metrics], sort_keys=True)


def _shown_values(run: dict[str, Any]) -> str:
    metrics = {name: f"{float(value):.12g}" for name, value in run["metrics"].items()}
    return json.dumps([run["params"], metrics], sort_keys=True)


def _page(bench: Bench, rows: dict[str, str]) -> str:
    version = subprocess.run(
        [bench.python, "-c", "import mlflow; print(mlflow.__version__)"], capture_output=True, text=True, check=True
    ).stdout.strip()
    same = sum(row.endswith("| the same |") for row in rows.values())
    head = "| example | runs | points | params | tags | datasets | artifacts | models | traces | random | result |"
    lines = [
        "# MLflow's examples, unmodified, without mlw and with it",
        "",
        "Made by `python benchmarks/mlflow_examples.py CHECKOUT PYTHON`; not edited by hand.",
        "",
        *(f"- {fact}" for fact in machine.facts(bench.scratch)),
        f"- mlflow {version}; {same} of {len(rows)} examples give the same",
        "- The columns count what MLflow's own store has. Compared are status, parameters, last values and numbers of",
        "  points, tags (except MLflow's about the source), parents, datasets, files, logged models with all of their",
        "  data, registered models, traces, and exit codes; and the parameters and metrics in the history of mlw",
        "- random: values that also differ between two executions without mlw",
        "- requirements of models are MLflow's defaults (`MLFLOW_REQUIREMENTS_INFERENCE_TIMEOUT=1`), to save time",
        "",
        head,
        "| --- |" + " --- |" * (head.count("|") - 2),
        *(rows[name] for name in EXAMPLES if name in rows),
    ]
    return "\n".join(lines) + "\n"


def _earlier_rows() -> dict[str, str]:
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {line.split("`")[1]: line for line in lines if line.startswith("| `")}


def main() -> None:
    checkout, python, *names = sys.argv[1:]
    bench = Bench(Path(checkout).resolve(), Path(python).absolute())
    rows = _earlier_rows() if names else {}
    try:
        for name in EXAMPLES:
            if not names or any(part in name for part in names):
                comparison = bench.compare(name)
                print(comparison.row(), *comparison.differences, sep="\n    ", flush=True)
                if not comparison.failed:
                    rows[name] = comparison.row()
                    RESULTS.write_text(_page(bench, rows))
    finally:
        shutil.rmtree(bench.scratch)


if __name__ == "__main__":
    main()
