"""The HTTP API: the documentation matches, and malformed requests do no harm."""

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

from mlworkbench.ui.queries.projects import key_of
from tests.conftest import User, end_processes
from tests.machines.browser import ui_server
from tests.machines.payloads import PAYLOADS
from tests.machines.ui_routes import HttpClient, api_client, openapi

GUIDE = Path(__file__).parents[2] / "docs" / "api.md"
BEGIN, END = "<!-- made from /api/openapi.json: MLW_GOLDEN=write pytest tests/e2e/test_ui_api.py -->", "<!-- end -->"
# Routes that arbitrary requests would keep busy for too long, because they start processes or contact machines.
COSTLY = ("/api/submit", "/api/prepare", "/api/targets/attach", "/api/targets/{name}/check", "/api/clean")
COSTLY += ("/api/runs/{run}/diagnostics.zip",)


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method.upper(), path, operation)
        for path, methods in openapi()["paths"].items()
        for method, operation in methods.items()
    ]


def table() -> str:
    rows = [f"| `{method} {path}` | {operation['summary']} |" for method, path, operation in operations()]
    return "\n".join(("| request | description |", "|---|---|", *rows))


def test_every_route_is_documented():
    """The API is documented in docs/api.md and openapi.json, and every query parameter is bounded."""
    text = GUIDE.read_text()
    before, _, rest = text.partition(BEGIN)
    documented, _, after = rest.partition(END)
    if os.environ.get("MLW_GOLDEN") == "write":
        GUIDE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}")
    else:
        assert documented.strip() == table(), "the API changed: MLW_GOLDEN=write brings docs/api.md up to date"
    for method, path, operation in operations():
        assert operation.get("summary") and operation.get("tags"), (method, path)
        for parameter in operation.get("parameters", []):  # the request policy bounds path parameters
            assert parameter["in"] == "path" or _bounded(parameter["schema"]), (
                f"{method} {path}: {parameter['name']} may be as long as it likes"
            )


def _bounded(schema: dict[str, Any]) -> bool:
    schema = openapi()["components"]["schemas"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    choices = schema.get("anyOf") or [schema]
    limits = {"string": ("maxLength", "pattern", "enum", "const"), "integer": ("maximum",), "array": ("maxItems",)}
    return all(any(limit in choice for limit in limits.get(choice.get("type", ""), choice)) for choice in choices)


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[tuple[User, Any, Path, str]]:
    place = tmp_path_factory.mktemp("api")
    user = User(place)
    try:
        root = user.project(
            "demo", train="from mlworkbench import log\nfor n in range(9): log('loss', n)\nprint('hello')"
        )
        run = user.mlw("submit", "train.py", cwd=root).run
        with ui_server(user, root, place) as server:
            yield user, server, root, run
    finally:
        end_processes(user.store)


def examples(kind: str) -> list[str]:
    """Return the code blocks of the guide in this language."""
    return re.findall(rf"```{kind}\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def test_examples_of_guide(served, tmp_path):
    user, server, root, run = served
    assert len(examples("python")) == len(examples("bash")) == 1
    (tmp_path / "example.py").write_text(examples("python")[0])
    for command in (["python3", str(tmp_path / "example.py")], ["bash", "-euc", examples("bash")[0]]):
        # An unreachable proxy: requests through it would fail.
        env = {**user.env, "http_proxy": "http://127.0.0.1:1", "no_proxy": ""}
        done = subprocess.run(command, env=env, cwd=root, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done
        assert run in done.stdout, done


def test_every_get_route_responds(served):
    """With values of a real run, each GET route responds with 200 or with an error in the documented format."""
    user, server, root, run = served
    mine = api_client(server, user.store)
    values = {
        "run": run,
        "key": key_of(root),
        "name": "local",
        "project": key_of(root),
        "path": "train.py",
        "text": "o",
    }
    metrics = {"/api/runs/{run}/series": "loss", "/api/runs/{run}/points": "loss"}
    answered = set()
    for method, path, operation in operations():
        if method != "GET" or path == "/api/operations/{name}":
            continue
        given = {**values, **({"name": metrics[path]} if path in metrics else {})}
        needed = [
            parameter["name"]
            for parameter in operation.get("parameters", [])
            if parameter["in"] == "query" and parameter.get("required")
        ]
        address = re.sub(r"{(\w+)}", lambda gap, given=given: quote(given[gap[1]]), path)
        answer = mine.request(method, f"{address}?{urlencode({name: given[name] for name in needed})}")
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
    """Generate mostly valid values of the schema, sometimes arbitrary ones."""
    schema = openapi()["components"]["schemas"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if "anyOf" in schema:
        return st.one_of([_values(choice, depth + 1) for choice in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"]) | st.text(max_size=5)
    kind = schema.get("type")
    if kind == "object" and depth < 4:
        return st.fixed_dictionaries(
            {name: _values(choice, depth + 1) for name, choice in schema.get("properties", {}).items()}
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
def test_arbitrary_requests_cause_no_server_error(served, data):
    """No parameters or body cause an internal server error or a response without the nosniff header."""
    user, server, root, run = served
    mine: HttpClient = api_client(server, user.store)
    method, path, operation = data.draw(st.sampled_from([one for one in operations() if one[1] not in COSTLY]))
    values = {"run": run, "key": key_of(root), "name": "local"}
    keep = method != "DELETE" and data.draw(st.booleans())
    query: list[tuple[str, str]] = []
    for one in operation.get("parameters", []):
        value = data.draw(_values(one["schema"]))
        if one["in"] == "path":
            filled = values[one["name"]] if keep else str(value)
            path = path.replace(f"{{{one['name']}}}", quote(filled.encode("utf-8", "replace"), safe="") or "x")
        elif one.get("required") or data.draw(st.booleans()):
            for each in value if isinstance(value, list) else [value]:
                query.append((one["name"], str(each).encode("utf-8", "replace").decode()))
    body = None
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        sent = data.draw(_values(schema) | st.sampled_from([None, [], {}, "x", 1]))
        body = json.dumps(sent).encode()
    answer = mine.request(
        method, path + ("?" + urlencode(query) if query else ""), body, Content_Type="application/json"
    )
    assert answer.status < 500 or answer.status == 502, (method, path, query, body, answer)
    assert answer.headers["x-content-type-options"] == "nosniff"
    if answer.status >= 400 and answer.headers["content-type"].startswith("application/json"):
        assert "Traceback" not in answer.body.decode()
