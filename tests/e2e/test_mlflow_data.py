"""What a script records with MLflow besides metrics, as ``mlw show`` and the run page show it."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from tests.e2e.mlflow_environments import NEWEST, mlflow_python
from tests.e2e.test_environment import set_compute_key
from tests.machines.browser import browser_session

TIMEOUT = 400  # seconds; MLflow creates its database slowly
pytestmark = pytest.mark.timeout(TIMEOUT + 100)

SCRIPT = """
import mlflow
import pandas
from mlworkbench import log_table


@mlflow.trace(span_type="RETRIEVER")
def retrieve(question):
    return ["iris has three species"]


@mlflow.trace(span_type="CHAT_MODEL")
def chat(question, documents):
    usage = {"input_tokens": 12, "output_tokens": 5, "total_tokens": 17}
    mlflow.get_current_active_span().set_attribute("mlflow.chat.tokenUsage", usage)
    return {"content": "three " * 500}


@mlflow.trace
def answer(question):
    return chat(question, retrieve(question))


@mlflow.trace
def refuse(question):
    raise ValueError("no answer for " + question)


def double(rows):
    return [2 * row for row in rows]


mlflow.set_experiment("agents")
with mlflow.start_run(description="Answers **questions** <script>document.title = 'owned'</script>"):
    frame = pandas.DataFrame({"petal length": [1.4, 4.7]})
    iris = mlflow.data.from_pandas(frame, name="iris", source="https://example.org/iris.csv")
    mlflow.log_input(iris, context="training")
    mlflow.set_tag("comment", "long " * 200)
    registered = {"registered_model_name": "iris-agent", "input_example": ["a"]}
    model = mlflow.pyfunc.log_model(name="doubler", python_model=double, **registered)
    mlflow.log_metric("f1", 0.8, model_id=model.model_id)
    mlflow.MlflowClient().set_registered_model_alias("iris-agent", "champion", 1)
    answer("how many species?")
    try:
        refuse("why?")
    except ValueError:
        pass
    for number in range(2):
        mlflow.log_table({"question": ["q%d" % number], "score": [number]}, "answers.json")
        log_table("grades", [{"grade": number}])
"""


@pytest.fixture(scope="module")
def python():
    return str(mlflow_python(NEWEST))


def test_recorded_data_is_shown(user, python, tmp_path):
    root = user.project("demo", train=SCRIPT)
    set_compute_key(root, "local", "pythonLocation", python)
    environment = ("--env", "MLFLOW_REQUIREMENTS_INFERENCE_TIMEOUT=1")
    run = user.mlw("submit", "-c", "local", *environment, "train.py", cwd=root, timeout=TIMEOUT).run
    see_page_in_terminal(user, root, run)
    see_lists(user, root, run)
    with browser_session(user, root, tmp_path) as ui:
        see_overview(ui, run)
        see_traces(ui, run)
        see_tables(ui, run)
        see_packages(ui, run)
        assert ui.page.title() != "owned"
        ui.assert_no_errors()


def see_page_in_terminal(user, root, run):
    page = user.mlw("show", run, cwd=root).out
    lines = [" ".join(line.split()) for line in page.splitlines()]
    assert "Description Answers **questions** <script>document.title = 'owned'</script>" in lines
    assert any(line.startswith("iris training https://example.org/iris.csv ") for line in lines), page
    assert any(line.endswith(" 1 column, 2 rows") for line in lines), page
    assert "doubler models/doubler f1 0.8 iris-agent 1 (champion)" in lines, page
    assert any(line.startswith("tr-") and " refuse ERROR " in line for line in lines), page
    assert any(line.startswith("tr-") and " answer OK " in line and " 17 " in line for line in lines), page
    assert "answers.json 2 question, score" in lines and "grades 2 grade" in lines, page
    (tags,) = [line for line in lines if line.startswith("Tags")]
    assert tags.startswith("Tags comment=long long") and tags.endswith("…") and len(tags) < 100
    (environment,) = [line for line in lines if line.startswith("Environment")]
    assert " packages, " in environment


def see_lists(user, root, run):
    listed = user.mlw("history", "list", "--columns", "run_id,tags", cwd=root).out
    assert "comment=long long" in listed and "…" in listed and len(listed) < 500
    facts = json.loads(user.mlw("show", run, "-o", "json", cwd=root).out)
    assert facts["children"] == [], "MLflow's database is not recorded a second time"
    assert [data["name"] for data in facts["datasets"]] == ["iris"]
    assert facts["datasets"][0]["profile"] == {"num_rows": 2, "num_elements": 2}
    assert facts["logged_models"][0]["metrics"] == {"f1": 0.8}
    (version,) = facts["model_versions"]
    assert (version["name"], version["version"], version["aliases"]) == ("iris-agent", "1", ["champion"])
    assert version["path"] == "models/doubler"
    assert "mlflow" in {package["name"] for package in facts["packages"]}
    assert facts["tags"] == ["comment=" + "long " * 200]
    traces = json.loads(user.mlw("history", "traces", run, "-o", "json", cwd=root).out)
    assert [(trace["name"], trace["status"], trace["tokens"]) for trace in traces] == [
        ("refuse", "ERROR", None),
        ("answer", "OK", 17),
    ]
    assert traces == facts["traces"]
    tree = user.mlw("history", "traces", run, traces[1]["trace_id"][:9], cwd=root).out
    rows = [line.split() for line in tree.splitlines()]
    names = [next((word for word in row if word in ("answer", "retrieve", "chat")), "") for row in rows]
    assert [name for name in names if name] == ["answer", "answer", "retrieve", "chat"], tree
    assert "how many species?" in tree and len(tree) < 3000
    failed = user.mlw("history", "traces", run, traces[0]["trace_id"], cwd=root).out
    assert "ValueError: no answer for why?" in failed
    table = user.mlw("history", "tables", run, "answers.json", "-o", "json", cwd=root).out
    assert json.loads(table) == [{"question": "q0", "score": 0}, {"question": "q1", "score": 1}]
    table = user.mlw("history", "tables", run, "grades", "-o", "json", cwd=root).out
    assert json.loads(table) == [{"grade": 0}, {"grade": 1}]


def see_overview(ui, run):
    page = ui.go(f"/runs/{run}")
    tag = page.locator(".mlw-run-head .mlw-run-word")
    expect(tag).to_have_attribute("title", "comment=" + "long " * 200)
    description = page.locator(".mlw-card", has=page.get_by_role("heading", name="Description"))
    expect(description.locator("strong")).to_have_text("questions")
    expect(description).to_contain_text("<script>")
    datasets = page.get_by_role("region", name="Datasets")
    expect(datasets).to_contain_text("https://example.org/iris.csv")
    models = page.get_by_role("region", name="Models")
    expect(models).to_contain_text("iris-agent 1 (champion)")
    expect(models).to_contain_text("f1 0.8")
    models.get_by_role("link", name="doubler").click()
    expect(page.get_by_text("models/doubler/MLmodel").or_(page.get_by_text("MLmodel")).first).to_be_visible()


def see_traces(ui, run):
    page = ui.go(f"/runs/{run}?tab=traces")
    page.get_by_role("button", name="answer").click()
    spans = page.get_by_role("list", name="Spans of answer").get_by_role("listitem")
    expect(spans).to_have_count(3)
    expect(spans.nth(2)).to_contain_text("chat")
    spans.nth(2).get_by_role("button").click()
    expect(page.get_by_text("three three three").first).to_be_visible()


def see_tables(ui, run):
    page = ui.go(f"/runs/{run}?tab=metrics")
    expect(page.get_by_role("region", name="answers.json")).to_have_count(1)
    expect(page.get_by_role("region", name="answers.json").get_by_role("row")).to_have_count(3)
    expect(page.get_by_role("region", name="grades").get_by_role("row")).to_have_count(3)


def see_packages(ui, run):
    page = ui.go(f"/runs/{run}?tab=environment")
    page.get_by_role("textbox", name="Search packages").fill("mlflow-skinny")
    expect(page.get_by_role("gridcell", name="mlflow-skinny")).to_be_visible()


# The table of MLflow 2, written without MLflow.
REMOTE = """
import os, sqlite3
os.makedirs("outputs/mlflow")
connection = sqlite3.connect("outputs/mlflow/mlflow.db")
connection.execute("CREATE TABLE trace_info (request_id, experiment_id, timestamp_ms, execution_time_ms, status)")
connection.execute("INSERT INTO trace_info VALUES ('tr-1', 0, 1000, 5, 'OK')")
connection.commit()
"""


def test_traces_of_another_machine(shared_target):
    remote = shared_target()
    remote.write("train.py", REMOTE)
    run = remote.submit("train.py").run
    traces = json.loads(remote.laptop.mlw("history", "traces", run, "-o", "json", cwd=remote.project).out)
    assert [trace["trace_id"] for trace in traces] == ["tr-1"]
