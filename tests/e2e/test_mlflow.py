"""``import mlflow`` in a run: code from MLflow's guides logs to this run, without installation or changes."""

from __future__ import annotations

import json
import os

import pytest

from tests.e2e.mlflow_environments import BEFORE, NEWEST, OLDEST, mlflow_python
from tests.e2e.python_environments import ONE_THREAD
from tests.e2e.test_environment import set_compute_key
from tests.e2e.test_tracking import set_runconfig_key

TIMEOUT = 400  # seconds; importing MLflow is slow, and finding a model's requirements is slower
pytestmark = pytest.mark.timeout(TIMEOUT + 100)


ALL = pytest.mark.parametrize("version", [NEWEST, BEFORE, OLDEST], indirect=True)


@pytest.fixture(params=[NEWEST, BEFORE])
def version(request):
    return request.param


# Use the default list of requirements instead of a second Python that imports everything to find them.
NO_SEARCH = ("--env", "MLFLOW_REQUIREMENTS_INFERENCE_TIMEOUT=1")


@pytest.fixture
def run(user, version):
    """Return a function that submits a script with this version of MLflow and returns the completed run."""

    def submit(script, *arguments, framework="scikit-learn", configure=lambda root: None):
        root = user.home / "demo"
        if not root.exists():
            user.project("demo")
            set_compute_key(root, "local", "pythonLocation", str(mlflow_python(version, framework)))
        (root / "train.py").write_text(script)
        configure(root)
        before = sorted(root.rglob("*"))
        done = user.mlw("submit", "-c", "local", *ONE_THREAD, *arguments, "train.py", cwd=root, timeout=TIMEOUT)
        assert done.code == 0, done
        assert sorted(root.rglob("*")) == before, "the project stays as it was"
        return Ran(user, done)

    return submit


class Ran:
    """A completed run: what the history shows, and what the run recorded."""

    def __init__(self, user, done):
        self.user = user
        self.out = done.out
        self.err = done.err
        self.id = done.run
        self.info = user.info(done.run)
        self.folder = user.folder(done.run)
        self.outputs = self.folder / "work" / "outputs"
        files = (self.folder / "metrics").glob("*")
        lines = [line for file in files for line in file.read_text().splitlines()]
        self.lines = [json.loads(line) for line in lines]

    def of(self, kind, run=None):
        """Return the records of a kind, of this run or of one of its children."""
        records = [line["d"] for line in self.lines if line.get("k") == kind]
        return [data for data in records if data.get("run") == run]

    def named(self, kind, run=None):
        """Return a mapping from name to value, where later records win."""
        return {data["name"]: data["value"] for data in self.of(kind, run)}

    def children(self):
        """Return the child runs by name, with all their recorded data."""
        merged = {}
        for line in self.lines:
            if line.get("k") == "child":
                merged.setdefault(line["d"]["run"], {}).update(line["d"])
        return {child["name"]: child for child in merged.values()}

    def series(self, name):
        return [(line["s"], line["v"]) for line in self.lines if line.get("n") == name]

    def files(self):
        return {data["path"]: data["as"] for data in self.of("file")}


# -- logging -------------------------------------------------------------------------------------------

QUICKSTART = """
import os
from mlflow import get_tracking_uri, log_artifacts, log_metric, log_param

log_param("depth", 5)
for value in (0.5, 1.5, 2.5):
    log_metric("foo", value)
os.makedirs("outputs", exist_ok=True)
with open("outputs/test.txt", "w") as file:
    file.write("hello world!")
log_artifacts("outputs")
print(get_tracking_uri(), os.environ.get("MLFLOW_ALLOW_FILE_STORE"))
"""


@ALL
def test_basic_logging_from_guides(run):
    """MLflow logs to the mlw run, and artifacts are among the run's outputs. MLflow's own stores are not created."""
    ran = run(QUICKSTART)
    assert ran.out.split()[1] == "None", ran.out
    assert ran.info["status"] == "Completed"
    assert ran.info["foo"] == 2.5
    assert ran.series("foo") == [(0, 0.5), (0, 1.5), (0, 2.5)]
    assert ran.named("param") == {"depth": "5"}
    assert [path.name for path in ran.outputs.iterdir()] == ["test.txt"]
    assert ran.of("ended") == [{"status": "completed"}]
    assert ran.children() == {}
    left = {path.name for path in (ran.folder / "work").iterdir()}
    assert not [name for name in left if name.startswith("ml")], "neither mlruns nor a database"


STORES = """
import os
import mlflow, mlflow.data, numpy

for number, uri in enumerate(["sqlite:///mlflow.db", "file:./files"]):
    mlflow.set_tracking_uri(uri)
    with mlflow.start_run(run_name=uri[:4]):
        mlflow.log_param("number", number)
        mlflow.set_tag("team", "vision")
        for step in range(3):
            mlflow.log_metric("loss", 1 / (step + 1), step=step)
        if number:
            mlflow.log_text("hello", "hello.txt")
            continue
        mlflow.log_input(mlflow.data.from_numpy(numpy.zeros((3, 2)), name="zeros"), context="training")
        model = mlflow.initialize_logged_model(name="net", model_type="agent")
        mlflow.log_metric("acc", 0.5, model_id=model.model_id)
        with mlflow.start_span("predict"):
            pass
        mlflow.MlflowClient().create_registered_model("Net")
        mlflow.MlflowClient().create_model_version("Net", model.artifact_location)
"""


@pytest.mark.parametrize("version", [NEWEST], indirect=True)
def test_stores_of_the_script_are_recorded(run):
    """The script sets its own tracking URI, which replaces ours. Its files are read when it has ended."""
    ran = run(STORES, "--env", "MLFLOW_ALLOW_FILE_STORE=true")
    children = ran.children()
    assert sorted(children) == ["file", "sqli"]
    assert {child["status"] for child in children.values()} == {"completed"}
    assert ran.info["loss"] == 1 / 3 and ran.info["params"] == {"number": "0"}, "the first one is also this run"
    other = children["file"]["run"]
    assert ran.named("param", other) == {"number": "1"} and ran.named("tag", other)["team"] == "vision"
    points = [(data["step"], data["value"]) for data in ran.of("metric", other)]
    assert points == [(step, 1 / (step + 1)) for step in range(3)]
    assert "hello.txt: an MLflow artifact outside of outputs/" in ran.err
    (unkept,) = [line for line in ran.err.splitlines() if line.startswith("Not kept:")]
    assert "files/" in unkept and "mlflow.db" not in unkept
    shown = json.loads(ran.user.mlw("history", "show", ran.id, "-o", "json").out)
    assert [(dataset["name"], dataset["context"]) for dataset in shown["datasets"]] == [("zeros", "training")]
    assert [(model["name"], model["type"], model["metrics"]) for model in shown["logged_models"]] == [
        ("net", "agent", {"acc": 0.5})
    ]
    assert [(entry["name"], entry["version"]) for entry in shown["model_versions"]] == [("Net", "1")]
    assert [trace["name"] for trace in shown["traces"]] == ["predict"], "the database is among the outputs"


EVERYTHING = """
import sys, threading
import matplotlib
import mlflow
import numpy as np

matplotlib.use("agg")
import matplotlib.pyplot as plt

calls = []
main = threading.get_ident()
picture = np.zeros((8, 8, 3), dtype=np.uint8)
mlflow.set_experiment("MLflow Quickstart")
with mlflow.start_run(description="all of it") as run:
    mlflow.log_params({"lr": 0.01, "solver": "lbfgs"})
    mlflow.set_tags({"release.candidate": "RC1", "wrong": "x"})
    mlflow.delete_tag("wrong")
    mlflow.log_metrics({"nan": float("nan"), "inf": float("inf")}, step=7)
    sys.addaudithook(lambda name, _: calls.append(name) if threading.get_ident() == main else None)
    for step in range(200):
        mlflow.log_metric("loss", 1 / (step + 1), step=step)
    network = [name for name in calls if name.startswith("socket.")]
    mlflow.log_metric("loss/train", 5)
    mlflow.log_text("a note", "notes/one.txt")
    mlflow.log_dict({"k": 1}, "some.json")
    mlflow.log_artifact("train.py")
    mlflow.log_artifacts(".", "copy")
    mlflow.log_image(picture, "picture.png")
    mlflow.log_image(picture, key="seen/by step", step=3)
    figure, axes = plt.subplots()
    axes.plot([0, 1], [2, 3])
    mlflow.log_figure(figure, "figure.png")
    mlflow.log_table({"question": ["a", "b"], "score": [1, 2]}, "table.json")
    names = [one.path for one in mlflow.MlflowClient().list_artifacts(run.info.run_id)]
    found = mlflow.search_runs(filter_string="params.solver = 'lbfgs'")
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")
print("name", run.info.run_name)
print("network", network)
print("read again", len(found), len(history), mlflow.load_table("table.json").shape, sorted(names))
"""


def test_all_logging_functions(run):
    ran = run(EVERYTHING)
    printed = dict(line.split(" ", 1) for line in ran.out.splitlines() if line.startswith(("name", "network", "read")))
    assert printed["name"] == ran.id
    assert printed["network"] == "[]", "a metric is never sent anywhere by the script"
    assert printed["read"].startswith("again 1 200 (2, 2) ['copy', 'figure.png', 'images', 'notes', 'picture.png', "), (
        printed
    )
    assert ran.series("loss") == [(step, 1 / (step + 1)) for step in range(200)]
    assert ran.info["loss"] == 1 / 200
    assert ran.info["loss/train"] == 5.0, "the name of another is the begin of its own"
    assert ran.series("nan") + ran.series("inf") == [(7, "NaN"), (7, "Infinity")]
    assert ran.named("param") == {"lr": "0.01", "solver": "lbfgs"}
    tags = ran.named("tag")
    assert tags["release.candidate"] == "RC1" and tags["mlflow.note.content"] == "all of it"
    assert tags["wrong"] is None, "removed again"
    files = ran.files()
    steps = [data for data in ran.of("file") if "step" in data]
    assert [(data["as"], data["name"], data["step"]) for data in steps] == [("image", "seen/by step", 3)]
    files.pop(steps[0]["path"])
    expected = {"notes/one.txt": "text", "some.json": "file", "train.py": "file", "table.json": "table"}
    assert files == {**expected, "picture.png": "image", "figure.png": "image"}
    assert all((ran.outputs / path).is_file() for path in [*files, steps[0]["path"]])
    assert (ran.outputs / "copy" / "train.py").is_file()
    assert not (ran.outputs / "copy" / "outputs" / "copy").exists(), "a folder is not copied into itself"


# -- several runs --------------------------------------------------------------------------------------

SEVERAL = """
import os
import mlflow

mlflow.set_experiment("sweep")
with mlflow.start_run(run_name="parent"):
    mlflow.log_metric("best", 3)
    for lr in (1, 2):
        with mlflow.start_run(run_name="lr %d" % lr, nested=True):
            mlflow.log_param("lr", lr)
            mlflow.log_metric("loss", lr / 10, step=1)
            mlflow.log_text("mine", "own.txt")
            with mlflow.start_run(run_name="fold of %d" % lr, nested=True):
                pass
try:
    with mlflow.start_run(run_name="later"):
        mlflow.log_metric("late", 1)
        raise ValueError("caught by the script")
except ValueError:
    pass
"""


@ALL
def test_nested_and_later_runs_are_children(run, user):
    ran = run(SEVERAL)
    assert ran.info["best"] == 3.0 and "loss" not in ran.info and "late" not in ran.info
    children = ran.children()
    assert sorted(children) == ["fold of 1", "fold of 2", "later", "lr 1", "lr 2", "parent"]
    for lr in (1, 2):
        child = children[f"lr {lr}"]
        assert child["parent"] == children["parent"]["run"] and child["status"] == "completed"
        assert child["started"] <= child["ended"]
        assert children[f"fold of {lr}"]["parent"] == child["run"]
        assert ran.named("param", child["run"]) == {"lr": str(lr)}
        assert ran.named("metric", child["run"]) == {"loss": lr / 10}
        (file,) = ran.of("file", child["run"])
        assert (ran.outputs / file["path"]).read_text() == "mine"
    assert children["later"]["status"] == "failed"
    assert ran.named("metric", children["later"]["run"]) == {"late": 1.0}
    assert children["parent"]["same"] is True, "it has the data of the run"
    parent, later = (f"{ran.id}.{children[name]['run'][:8]}" for name in ("parent", "later"))
    assert ran.info["children"] == [parent, later]
    first = user.info(parent)
    assert (first["name"], first["status"], first["best"]) == ("parent", "Completed", 3.0)
    assert first["parent_run_id"] == ran.id
    assert user.info(f"{ran.id}.{children['lr 1']['run'][:8]}")["parent_run_id"] == parent


TOP_LEVEL = """
import mlflow

ids = []
for number in range(3):
    with mlflow.start_run(run_name="trial %d" % number) as run:
        mlflow.log_metric("score", number)
    ids.append(run.info.run_id)
for number in (0, 2):
    mlflow.delete_run(ids[number])
print("ids", *ids)
"""


def test_top_level_runs_are_children_and_deleted_ones_are_marked(run, user):
    ran = run(TOP_LEVEL)
    ids = [f"{ran.id}.{mlflow_id[:8]}" for mlflow_id in ran.out.split("ids ")[1].split()]
    assert sorted(ran.info["children"]) == sorted(ids)
    shown = [user.info(child) for child in ids]
    assert [child["name"] for child in shown] == ["trial 0", "trial 1", "trial 2"]
    assert [child["score"] for child in shown] == [0.0, 1.0, 2.0]
    assert [child["parent_run_id"] for child in shown] == [ran.id] * 3
    assert [child["detail"] for child in shown] == ["deleted", None, "deleted"]
    assert ran.info["detail"] is None, "the run itself was not deleted"
    page = user.mlw("history", "show", ran.id, cwd=user.home / "demo").out
    assert page.count("Completed (deleted)") == 2, page
    assert [line for line in page.splitlines() if line.endswith("best")][0].startswith(ids[1]), page
    best = user.mlw("history", "best", "--metric", "score", "-o", "json", cwd=user.home / "demo").out
    assert [run["run_id"] for run in json.loads(best)] == [ids[1]], "deleted runs are not ranked"


PROCESSES = """
import os
import mlflow

begin, go = os.pipe()
pids = []
for number in range(4):
    pid = os.fork()
    if pid == 0:
        os.close(go)
        os.read(begin, 1)
        with mlflow.start_run(run_name="of %d" % number):
            mlflow.log_metric("number", number)
        raise SystemExit(0)
    pids.append(pid)
os.close(go)
codes = [os.waitpid(pid, 0)[1] for pid in pids]
assert codes == [0] * 4, codes
"""


@pytest.mark.parametrize("version", [NEWEST])
def test_parallel_processes_agree_on_first_run(run):
    ran = run(PROCESSES)
    children = ran.children()
    series = ran.series("number")
    others = [ran.named("metric", child["run"])["number"] for child in children.values() if not child.get("same")]
    assert len(series) == 1 and len(others) == 3
    assert sorted([series[0][1], *others]) == [0, 1, 2, 3]


# -- models --------------------------------------------------------------------------------------------

MODEL = """
import mlflow
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

inputs, wanted = load_iris(return_X_y=True)
mlflow.set_experiment("MLflow Quickstart")
with mlflow.start_run() as run:
    model = LogisticRegression(max_iter=500).fit(inputs, wanted)
    for step in range(3):
        mlflow.log_metric("accuracy", model.score(inputs, wanted), step=step)
    said = {"name" if mlflow.__version__ >= "3" else "artifact_path": "iris_model"}
    said.update(input_example=inputs[:2], registered_model_name="tracking-quickstart")
    logged = mlflow.sklearn.log_model(model, **said)
for uri in (logged.model_uri, "runs:/%s/iris_model" % run.info.run_id, "models:/tracking-quickstart/1"):
    print("loaded", mlflow.pyfunc.load_model(uri).predict(inputs[:3]).tolist())
files = mlflow.MlflowClient().list_artifacts(run.info.run_id, "iris_model")
print("once", len(files) == len({one.path for one in files}) > 3)
"""


RANKS = """
import os, subprocess, sys
if "RANK" not in os.environ:
    ranks = [dict(os.environ, RANK=str(rank), WORLD_SIZE="2") for rank in (1, 0)]
    processes = [subprocess.Popen([sys.executable, __file__], env=variables) for variables in ranks]
    sys.exit(max(process.wait() for process in processes))
import mlflow
rank = int(os.environ["RANK"])
with mlflow.start_run() as run:
    mlflow.log_params({"lr": 0.1 + rank})
    mlflow.set_tag("stage", rank)
    mlflow.log_metric("loss", 10.0 * rank, step=0)
    sys.stdout.write(run.info.run_id + "\\n")
"""


@pytest.mark.parametrize("version", [NEWEST])
def test_ranks_join_one_run(run):
    """Parameters and tags that differ are those of rank 0, and no rank fails because they differ."""
    ran = run(RANKS)
    first, second = ran.out.split()
    assert first == second
    assert not ran.info.get("children"), ran.info
    assert (ran.info["loss"], ran.info["params"]["lr"], ran.info["tags"]) == (0.0, "0.1", ["stage=0"]), ran.info
    assert [file.suffix for file in (ran.folder / "metrics").iterdir()].count(".rank1") == 1


def test_model_is_logged_loaded_and_registered(run):
    ran = run(MODEL)
    assert ran.out.count("loaded [0, 0, 0]") == 3
    assert "once True" in ran.out
    (model,) = [data for data in ran.of("file") if data["as"] == "model"]
    assert model["name"] == "iris_model"
    assert (ran.outputs / model["path"] / "MLmodel").is_file()
    needs = (ran.outputs / model["path"] / "requirements.txt").read_text()
    assert "scikit-learn==" in needs and "mlworkbench" not in needs, "it shall load where we are not"
    assert [step for step, _ in ran.series("accuracy")] == [0, 1, 2], "not again when MLflow links them with the model"
    assert ran.named("tag")["mlflow.registered.tracking-quickstart"] == "1"
    assert ran.err.count("registry lasts for this run only") + ran.out.count("registry lasts for this run only") == 1


MODEL_METRICS = """
import mlflow


def scale(rows):
    return [2 * row for row in rows]


with mlflow.start_run() as run:
    name = {"name" if mlflow.__version__ >= "3" else "artifact_path": "doubler"}
    mlflow.pyfunc.log_model(python_model=scale, input_example=["a"], **name)
    mlflow.log_metric("acc", 0.5)
    mlflow.log_metric("acc/val", 0.25)
    mlflow.log_params({"size": 1, "size/inner": 2})
    mlflow.set_tags({"note": "a", "note/inner": "b"})
data = mlflow.get_run(run.info.run_id).data
print("values", data.metrics["acc"], data.metrics["acc/val"], data.params["size/inner"], data.tags["note/inner"])
"""


def test_names_that_begin_with_another_name(run):
    ran = run(MODEL_METRICS, *NO_SEARCH)
    assert "values 0.5 0.25 2 b" in ran.out
    assert (ran.info["acc"], ran.info["acc/val"]) == (0.5, 0.25)
    assert "conflict" not in ran.err + ran.out


TRACES = """
import mlflow


@mlflow.trace
def add(first, second):
    return first + second


mlflow.set_experiment("agents")
with mlflow.start_run() as run:
    add(1, 2)
with mlflow.start_run() as other:
    mlflow.log_text("mine", "mine.txt")
mlflow.flush_trace_async_logging()
for id in (run.info.run_id, other.info.run_id):
    print("of run", len(mlflow.search_traces(run_id=id, return_type="list")))
(trace,) = mlflow.search_traces(return_type="list")
print("spans", [(span.name, span.outputs) for span in trace.data.spans])
mlflow.log_feedback(trace_id=trace.info.trace_id, name="correct", value=True)
print("feedback", mlflow.get_trace(trace.info.trace_id).info.assessments[0].value)
mlflow.genai.register_prompt("greeting", "hello {{name}}")
print("prompt", mlflow.genai.load_prompt("prompts:/greeting/1").format(name="you"))
data = mlflow.genai.create_dataset("questions", experiment_id=run.info.experiment_id)
data.merge_records([{"inputs": {"question": "why"}}])
print("records", len(data.to_df()))
for id in (run.info.run_id, other.info.run_id):
    print("artifacts", [file.path for file in mlflow.MlflowClient().list_artifacts(id)])

mlflow.MlflowClient().link_traces_to_run([trace.info.trace_id], other.info.run_id)
mlflow.initialize_logged_model(name="agent", model_type="agent", source_run_id=run.info.run_id)
print("linked", len(mlflow.search_traces(run_id=other.info.run_id, return_type="list")))
guidelines = {"name": "polite", "guidelines": "be polite", "model": "openai:/none"}
mlflow.genai.scorers.Guidelines(**guidelines).register(name="polite")
print("scorers", [scorer.name for scorer in mlflow.genai.list_scorers()])


@mlflow.genai.scorer
def is_three(outputs):
    return outputs == 3


rows = [{"inputs": {"first": 1, "second": 2}}, {"inputs": {"first": 2, "second": 2}}]
print("evaluated", mlflow.genai.evaluate(data=rows, predict_fn=add, scorers=[is_three]).metrics["is_three/mean"])
"""


@pytest.mark.parametrize("version", [NEWEST])
def test_traces_and_prompts_are_stored_in_the_run(run):
    ran = run(TRACES)
    assert "spans [('add', 3)]" in ran.out
    assert ran.out.count("of run 1") == ran.out.count("of run 0") == 1
    assert "feedback True" in ran.out and "prompt hello you" in ran.out and "records 1" in ran.out
    assert (ran.outputs / "mlflow" / "mlflow.db").is_file(), "collected with the run"
    assert "artifacts []\nartifacts ['mine.txt']" in ran.out, "the database and other runs are not artifacts"
    assert "linked 1" in ran.out and "scorers ['polite']" in ran.out and "evaluated 0.5" in ran.out
    shown = json.loads(ran.user.mlw("history", "show", ran.id, "-o", "json").out)
    assert [model["name"] for model in shown["logged_models"]] == ["agent"], "also without files"
    evaluation = list(ran.children().values())[-1]
    assert [data["value"] for data in ran.of("metric", evaluation["run"])] == [0.5], "a run of its own"


CONTRACT = """
import inspect, json, sys
import mlflow
from mlflow.store.model_registry import abstract_store as registry
from mlflow.store.tracking import abstract_store as tracking
from mlflow.tracking._model_registry.utils import _get_store as registry_store
from mlflow.tracking._tracking_service.utils import _get_store as tracking_store

sys.modules["sqlalchemy"] = None  # as with mlflow-skinny
try:
    mlflow.MlflowClient().search_registered_models()
except mlflow.MlflowException as error:
    print("error", error)
del sys.modules["sqlalchemy"]


def check(abstract, store, database):
    missing, unknown, nowhere = [], [], []
    names = [name for name in dir(abstract) if name[0] != "_" and inspect.isfunction(getattr(abstract, name))]
    for name in names:
        method, inherited = getattr(type(store), name), getattr(abstract, name)
        if method is inherited and "NotImplementedError" in inspect.getsource(method):
            missing.append(name)
        if method is inherited and getattr(method, "__isabstractmethod__", False):
            missing.append(name)
        accepted = inspect.signature(method).parameters
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values()):
            unknown += [(name, other) for other in inspect.signature(inherited).parameters if other not in accepted]
        is_delegated = method.__module__.startswith("mlworkbench") and method.__qualname__.startswith("_delegated")
        stock = getattr(database, name)
        if is_delegated and stock is inherited and "NotImplementedError" in inspect.getsource(stock):
            nowhere.append(name)
    facts = {"version": mlflow.__version__, "count": len(names), "missing": missing}
    print(json.dumps({**facts, "unknown": unknown, "nowhere": nowhere}))


from mlflow.store.model_registry.sqlalchemy_store import SqlAlchemyStore as RegistryDatabase
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

check(tracking.AbstractStore, tracking_store(), SqlAlchemyStore)
check(registry.AbstractStore, registry_store(), RegistryDatabase)
"""


@ALL
def test_store_has_every_method_of_mlflow(run):
    """Each public method of the installed version is implemented or delegated, with all parameters."""
    ran = run(CONTRACT)
    assert "package sqlalchemy is not installed; install mlflow instead of mlflow-skinny" in ran.out, ran.out
    tracking, registry = (json.loads(line) for line in ran.out.splitlines() if line.startswith('{"version"'))
    version = tracking["version"].rpartition(".")[0]
    assert tracking["count"] == {"2.9": 25, "2.22": 36, "3.17": 167}.get(version, tracking["count"])
    assert tracking["count"] >= 25 and registry["count"] >= 20
    assert tracking["missing"] == tracking["unknown"] == registry["missing"] == registry["unknown"] == []
    # No local store of MLflow implements these.
    assert set(tracking["nowhere"]) <= {"get_online_trace_details", "unlink_traces_from_run"}


SKLEARN = """
import mlflow
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

mlflow.autolog()
GridSearchCV(SVC(), {"C": [1, 10]}, cv=2).fit(*load_iris(return_X_y=True))
"""


def test_autolog_of_scikit_learn(run):
    ran = run(SKLEARN, *NO_SEARCH)
    assert 0.9 < ran.info["best_cv_score"] <= 1 and 0.9 < ran.info["training_accuracy_score"] <= 1
    params = ran.named("param")
    assert params["cv"] == "2" and params["best_C"] in ("1", "10")
    tried = [ran.named("param", child["run"])["C"] for child in ran.children().values()]
    assert sorted(tried) == ["1", "10"], "one child for each candidate"
    ids = [f"{ran.id}.{child['run'][:8]}" for child in ran.children().values()]
    assert sorted(ran.info["children"]) == sorted(ids), "all of them are children of this run"
    assert ran.files()["training_confusion_matrix.png"] == "image"
    assert ran.files()["cv_results.csv"] == "table"
    models = {data["name"] for data in ran.of("file") if data["as"] == "model"}
    assert models == {"model", "best_estimator"}
    assert ran.of("dataset")[0]["context"] == "train"


KERAS = """
import keras
import mlflow
import numpy as np

mlflow.keras.autolog()
keras.utils.set_random_seed(1)
inputs = np.random.rand(64, 4).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
model.compile(loss="mse", optimizer="adam", metrics=["mae"])
model.fit(inputs, inputs.sum(axis=1), epochs=3, batch_size=16, verbose=0)
"""


@pytest.mark.parametrize("version", [NEWEST])
def test_autolog_of_keras(run):
    ran = run(KERAS, *NO_SEARCH, framework="keras")
    losses = ran.series("loss")
    assert [step for step, _ in losses] == [0, 1, 2]
    assert losses[0][1] > losses[2][1] == ran.info["loss"]
    assert ran.named("param")["epochs"] == "3"
    (model,) = [data for data in ran.of("file") if data["as"] == "model"]
    assert (ran.outputs / model["path"] / "data" / "model.keras").stat().st_size > 0
    assert (ran.outputs / "model_summary.txt").is_file()


BOARD = """
import keras
import numpy as np

keras.utils.set_random_seed(1)
inputs = np.random.rand(64, 4).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(loss="mse", optimizer="adam")
board = keras.callbacks.TensorBoard("logs/fit")
kept = model.fit(inputs, inputs.sum(axis=1), epochs=3, validation_split=0.5, callbacks=[board], verbose=2)
print("kept", kept.history["loss"][-1], kept.history["val_loss"][-1])
"""


@pytest.mark.parametrize("version", [NEWEST])
def test_keras_tensorboard_callback(run, user):
    """TensorBoard event files and printed values become metrics without any MLflow or mlworkbench calls."""
    ran = run(
        BOARD, framework="keras", configure=lambda root: set_runconfig_key(root, "local", "MetricsFromLog", "true")
    )
    loss, validation = (float(number) for number in ran.out.split("kept ")[1].split())
    assert ran.info["train/epoch_loss"] == pytest.approx(loss, rel=1e-6)
    assert ran.info["validation/epoch_loss"] == pytest.approx(validation, rel=1e-6)
    assert [step for step, _ in ran.series("train/epoch_loss")] == [0, 1, 2]
    assert ran.info["val_loss"] == pytest.approx(validation, abs=1e-3)


LIGHTNING = """
import lightning
import mlflow
import torch


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        inputs, wanted = batch
        loss = torch.nn.functional.mse_loss(self.layer(inputs), wanted)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


torch.manual_seed(1)
inputs = torch.randn(64, 4)
data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
mlflow.pytorch.autolog(log_models=False)
trainer = lightning.Trainer(max_epochs=3, logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=16))
"""


@pytest.mark.parametrize("version", [NEWEST])
def test_autolog_of_lightning(run):
    ran = run(LIGHTNING, framework="lightning")
    losses = ran.series("train_loss")
    assert [step for step, _ in losses] == [0, 1, 2]
    assert losses[0][1] > losses[2][1] == ran.info["train_loss"]
    assert ran.named("param")["optimizer_name"] == "SGD"
    assert ran.files()["model_summary.txt"] == "text"


# -- external server -----------------------------------------------------------------------------------


def test_explicit_tracking_server_is_used(run):
    script = "import mlflow, os; print(mlflow.get_tracking_uri(), os.environ.get('MLFLOW_ALLOW_FILE_STORE'))"
    ran = run(script, "--env", "MLFLOW_TRACKING_URI=http://tracking.invalid:5000")
    assert ran.out.split() == ["http://tracking.invalid:5000", "None"]
    assert os.listdir(ran.outputs) == []


def test_exported_tracking_server_is_used(run, user):
    user.env["MLFLOW_TRACKING_URI"] = "http://tracking.invalid:5000"
    assert run("import mlflow; print(mlflow.get_tracking_uri())").out.split() == ["http://tracking.invalid:5000"]
    user.env["MLFLOW_TRACKING_URI"] = "sqlite:///mlflow.db"
    ran = run("import mlflow; print(mlflow.get_tracking_uri())")
    assert ran.out.split() == ["mlw:run"]
    assert "MLFLOW_TRACKING_URI is not passed to the script: its value is a relative path" in ran.err


def test_exported_experiment_does_not_move_the_run(run, user):
    user.env["MLFLOW_EXPERIMENT_NAME"] = "vision"
    ran = run("import mlflow; mlflow.log_metric('loss', 0.5)")
    assert ran.info["loss"] == 0.5 and ran.children() == {}


def test_disabled_recording_uses_the_store_of_mlflow(run):
    """With MLW_TRACKING=off, mlw records nothing, and MLflow's own tools can read what the script logged."""
    done = run(
        """
import mlflow
from mlflow import MlflowClient
with mlflow.start_run():
    mlflow.log_metric("loss", 0.5)
found = MlflowClient("sqlite:///mlflow.db").search_runs(["0"])
print(mlflow.get_tracking_uri(), [run.data.metrics for run in found])
""",
        *("--env", "MLW_TRACKING=off"),
    )
    assert "mlw:run [{'loss': 0.5}]" in done.out
    assert done.lines == []
