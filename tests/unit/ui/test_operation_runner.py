"""Operations of the HTTP API, with current names and the former names that work until 1.0."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi import FastAPI, Request

from mlworkbench.config.project_id_folders import DuplicateProjectId
from mlworkbench.errors import ConfigError, HostError, MlwError, NotFetched, UnknownName, Unreachable, UsageError
from mlworkbench.failure import Failure
from mlworkbench.ui import api
from mlworkbench.ui.api import operations
from mlworkbench.ui.backend import Backend
from mlworkbench.ui.operation_runner import Operation
from tests.machines.ui_routes import openapi


def failed_operation() -> Operation:
    operation = Operation("0123456789abcdef", ("experiment", "prepare"), 0.0)
    failure = Failure.of(Unreachable("no contact with box", "is it on?"))
    for line in (b"solving", json.dumps({"error": failure.to_json()}).encode()):
        operation.add_line(line)
    operation.exit_code = Unreachable.exit_code
    return operation


def get_json(path: str) -> tuple[int, Any]:
    """Return status and JSON of a response, without a server."""
    app = FastAPI()
    backend = SimpleNamespace(operations={"0123456789abcdef": failed_operation()})
    app.include_router(operations.routes(cast("Backend", backend)), prefix="/api")
    app.add_exception_handler(UnknownName, api._handle_mlw_error)
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    url_path, _, query = path.partition("?")
    scope = {"type": "http", "method": "GET", "path": url_path, "query_string": query.encode(), "headers": []}
    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent[1:]))


def test_operation_keeps_former_url_and_keys():
    status, body = get_json("/api/operations/0123456789abcdef?first=1")
    assert status == 200 and body["lines"][0] == "error: no contact with box"
    assert (body["total"], body["explain"], body["hint"]) == (4, "no-contact", "is it on?")
    assert (body["said"], body["more"]) == (body["total"], body["explain"])
    assert body["failure"] == {
        "code": "unreachable",
        "message": "no contact with box",
        "hint": "is it on?",
        "explain": "no-contact",
    }
    assert body["lines"][1:] == ["hint: is it on?", "hint: for details run 'mlw explain no-contact'"]
    assert get_json("/api/errands/0123456789abcdef?first=1") == (200, body)


@pytest.mark.parametrize("path", ["/api/operations/x", "/api/errands/x"])
def test_unknown_operation(path):
    status, body = get_json(path)
    assert status == 404 and body["error"].startswith("unknown operation 'x'")


def test_error_names_explain_page_by_both_keys():
    request = Request({"type": "http"})
    body = json.loads(asyncio.run(api._handle_mlw_error(request, Unreachable("no contact with box"))).body)
    assert (body["explain"], body["more"]) == ("no-contact", "mlw explain no-contact")
    assert set(json.loads(asyncio.run(api._handle_mlw_error(request, ConfigError("it is wrong"))).body)) == {
        "error",
        "hint",
        "code",
    }


def parse_error(*lines: bytes, code: int) -> MlwError:
    operation = Operation("1", ("submit",), 0.0, exit_code=code)
    for line in lines:
        operation.add_line(line)
    error = operation.error()
    assert error is not None
    return error


def error_record(error: MlwError) -> bytes:
    return json.dumps({"error": Failure.of(error).to_json()}).encode()


@pytest.mark.parametrize(
    "error",
    [UsageError("x", "y"), UnknownName("run", "x", ["y"]), NotFetched("x", more="index-not-reached"), MlwError("x")],
)
def test_error_survives_process_boundary(error):
    parsed = parse_error(b"error: another", error_record(error), code=error.exit_code)
    assert (type(parsed), Failure.of(parsed)) == (type(error), Failure.of(error))


def test_unknown_error_code_uses_class_of_exit_code():
    parsed = parse_error(error_record(DuplicateProjectId("/nowhere")), code=DuplicateProjectId.exit_code)
    assert isinstance(parsed, ConfigError) and parsed.code == DuplicateProjectId.code


def test_prose_on_stderr_is_not_parsed():
    parsed = parse_error(b"error: x", b"hint: y", code=HostError.exit_code)
    assert isinstance(parsed, HostError)
    assert Failure.of(parsed) == Failure("command-failed", "hint: y")
    assert parse_error(code=3).message == "mlw exited with code 3"


@pytest.mark.parametrize("line", [b'{"error": 1}', b'{"error": {"code": 3, "message": "x"}}', b'{"error": ', b"\xff"])
def test_invalid_error_record_is_shown_as_text(line):
    parsed = parse_error(line, code=1)
    assert parsed.code == "command-failed" and parsed.message == line.decode("utf-8", "replace")


def test_error_record_before_last_line_is_ignored():
    parsed = parse_error(error_record(ConfigError("of the script")), b"last words", code=3)
    assert (parsed.code, parsed.message) == ("command-failed", "last words")


def test_multiline_error_record_is_indented():
    operation = Operation("1", ("submit",), 0.0)
    operation.add_line(error_record(ConfigError("first\nsecond")))
    assert list(operation.lines) == ["error: first", "       second"]


def test_former_names_are_deprecated_in_openapi():
    schema = openapi()
    assert "/api/operations/{name}" in schema["paths"]
    assert not [path for path in schema["paths"] if "errand" in path]
    schemas = schema["components"]["schemas"]
    for name, former in (
        ("OperationState", "said"),
        ("OperationState", "more"),
        ("Submitted", "errand"),
        ("AttachAnswer", "errand"),
    ):
        assert schemas[name]["properties"][former]["deprecated"] is True
