"""The HTTP API: documented as it is, and proof against whatever is sent to it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlworkbench.ui.answers.projects import key_of
from tests.conftest import User, end_processes
from tests.machines.browser import workbench
from tests.machines.doors import Caller, openapi, program
from tests.machines.payloads import PAYLOADS

GUIDE = Path(__file__).parents[2] / "docs" / "api.md"
BEGIN, END = "<!-- made from /api/openapi.json: MLW_GOLDEN=write pytest tests/e2e/test_ui_api.py -->", "<!-- end -->"
# What would end the visit or take for ever: a run of each example, machines that are not there.
COSTLY = ("/api/submit", "/api/prepare", "/api/targets/attach", "/api/targets/{name}/check", "/api/clean")
COSTLY += ("/api/runs/{run}/diagnostics.zip",)


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method.upper(), path, told) for path, methods in openapi()["paths"].items() for method, told in methods.items()
    ]


def table() -> str:
    rows = [f"| `{method} {path}` | {told['summary']} |" for method, path, told in operations()]
    return "\n".join(("| request | description |", "|---|---|", *rows))


def test_every_route_is_described():
    """For people in docs/api.md, for programs in openapi.json; every parameter of a query has bounds."""
    text = GUIDE.read_text()
    before, _, rest = text.partition(BEGIN)
    known, _, after = rest.partition(END)
    if os.environ.get("MLW_GOLDEN") == "write":
        GUIDE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}")
    else:
        assert known.strip() == table(), "the API changed: MLW_GOLDEN=write brings docs/api.md up to date"
    for method, path, told in operations():
        assert told.get("summary") and told.get("tags"), (method, path)
        for one in told.get("parameters", []):  # the gate bounds what stands in the path
            assert one["in"] == "path" or _bounded(one["schema"]), (
                f"{method} {path}: {one['name']} may be as long as it likes"
            )


def _bounded(schema: dict[str, Any]) -> bool:
    schema = openapi()["components"]["schemas"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    choices = schema.get("anyOf") or [schema]
    limits = {"string": ("maxLength", "pattern", "enum", "const"), "integer": ("maximum",), "array": ("maxItems",)}
    return all(any(limit in one for limit in limits.get(one.get("type", ""), one)) for one in choices)


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[tuple[User, Any, Path, str]]:
    place = tmp_path_factory.mktemp("api")
    user = User(place)
    try:
        root = user.project(
            "demo", train="from mlworkbench import log\nfor n in range(9): log('loss', n)\nprint('hello')"
        )
        run = user.mlw("submit", "train.py", cwd=root).run
        with workbench(user, root, place) as bench:
            yield user, bench, root, run
    finally:
        end_processes(user.store)


def examples(kind: str) -> list[str]:
    """The blocks of the guide in this language."""
    return re.findall(rf"```{kind}\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def test_the_examples_of_the_guide_work(served, tmp_path):
    user, bench, root, run = served
    assert len(examples("python")) == len(examples("bash")) == 1
    (tmp_path / "example.py").write_text(examples("python")[0])
    for command in (["python3", str(tmp_path / "example.py")], ["bash", "-euc", examples("bash")[0]]):
        # A proxy that nobody is behind: whatever went through it would fail.
        env = {**user.env, "http_proxy": "http://127.0.0.1:1", "no_proxy": ""}
        done = subprocess.run(command, env=env, cwd=root, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done
        assert run in done.stdout, done


def test_what_is_asked_is_answered(served):
    """The examples of a real run: each reading route answers, as its description says."""
    user, bench, root, run = served
    mine = program(bench, user.store)
    known = {"run": run, "key": key_of(root), "name": "local", "project": key_of(root), "path": "train.py", "text": "o"}
    told = {"/api/runs/{run}/series": "loss", "/api/runs/{run}/points": "loss"}
    answered = set()
    for method, path, operation in operations():
        if method != "GET" or path == "/api/operations/{name}":
            continue
        given = {**known, **({"name": told[path]} if path in told else {})}
        needed = [
            one["name"] for one in operation.get("parameters", []) if one["in"] == "query" and one.get("required")
        ]
        address = re.sub(r"{(\w+)}", lambda gap, given=given: quote(given[gap[1]]), path)
        answer = mine.ask(method, f"{address}?{urlencode({name: given[name] for name in needed})}")
        if answer.status == 200:
            answered.add(path)
        else:
            assert answer.status in (400, 404, 409, 422) and set(json.loads(answer.body)) == {
                "error",
                "hint",
                "code",
            }, (
                path,
                answer,
            )
    assert {
        "/api/runs/{run}",
        "/api/runs/rows",
        "/api/projects",
        "/api/targets",
        "/api/runs/{run}/log/lines",
    } <= answered


def _values(schema: dict[str, Any], depth: int = 0) -> st.SearchStrategy[Any]:
    """Mostly what the schema asks for, sometimes anything."""
    schema = openapi()["components"]["schemas"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if "anyOf" in schema:
        return st.one_of([_values(one, depth + 1) for one in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"]) | st.text(max_size=5)
    kind = schema.get("type")
    if kind == "object" and depth < 4:
        return st.fixed_dictionaries(
            {name: _values(one, depth + 1) for name, one in schema.get("properties", {}).items()}
        )
    whole = st.integers(-(2**70), 2**70) | st.integers(-1, 100) | st.sampled_from([2**31, 2**63])
    plain: dict[Any, st.SearchStrategy[Any]] = {
        "integer": whole,
        "number": whole | st.floats(),
        "boolean": st.booleans(),
        "null": st.none(),
        "array": st.lists(_values(schema.get("items", {}), depth + 1), max_size=4) if depth < 4 else st.just([]),
    }
    return plain.get(kind, _TEXTS)


_TEXTS = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["", ".", "..", "../..", "/etc/passwd", "~", "-", "--help", "-o", "x" * 3000, "loss", "train.py"]),
    st.sampled_from(["a\0b", "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "%2e%2e", "NaN", "1e999"]),
    st.sampled_from(PAYLOADS),
)


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.data())
def test_nothing_that_is_sent_breaks_it(served, data):
    """No 500, no answer without our headers, whatever the parameters and the body are."""
    user, bench, root, run = served
    mine: Caller = program(bench, user.store)
    method, path, told = data.draw(st.sampled_from([one for one in operations() if one[1] not in COSTLY]))
    known = {"run": run, "key": key_of(root), "name": "local"}
    keep = method != "DELETE" and data.draw(st.booleans())
    query: list[tuple[str, str]] = []
    for one in told.get("parameters", []):
        value = data.draw(_values(one["schema"]))
        if one["in"] == "path":
            filled = known[one["name"]] if keep else str(value)
            path = path.replace(f"{{{one['name']}}}", quote(filled.encode("utf-8", "replace"), safe="") or "x")
        elif one.get("required") or data.draw(st.booleans()):
            for each in value if isinstance(value, list) else [value]:
                query.append((one["name"], str(each).encode("utf-8", "replace").decode()))
    body = None
    if "requestBody" in told:
        schema = told["requestBody"]["content"]["application/json"]["schema"]
        sent = data.draw(_values(schema) | st.sampled_from([None, [], {}, "x", 1]))
        body = json.dumps(sent).encode()
    answer = mine.ask(method, path + ("?" + urlencode(query) if query else ""), body, Content_Type="application/json")
    assert answer.status < 500 or answer.status == 502, (method, path, query, body, answer)
    assert answer.headers["x-content-type-options"] == "nosniff"
    if answer.status >= 400 and answer.headers["content-type"].startswith("application/json"):
        assert "Traceback" not in answer.body.decode()
