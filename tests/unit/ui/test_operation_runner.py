"""Operations of the HTTP API, by their names of today and by those that scripts may still use until 1.0."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi import FastAPI, Request

from mlworkbench.config.project_roots import SameId
from mlworkbench.errors import ConfigError, HostError, MlwError, NotFetched, UnknownName, Unreachable, UsageError
from mlworkbench.failure import Failure
from mlworkbench.ui import api
from mlworkbench.ui.api import errands as operations
from mlworkbench.ui.desk import Desk
from mlworkbench.ui.errands import Errand
from tests.machines.doors import openapi


def failed() -> Errand:
    made = Errand("0123456789abcdef", ("experiment", "prepare"), 0.0)
    failure = Failure.of(Unreachable("no contact with box", "is it on?"))
    for line in (b"solving", json.dumps({"error": failure.to_json()}).encode()):
        made.hear(line)
    made.code = Unreachable.exit_code
    return made


def get(path: str) -> tuple[int, Any]:
    """What the application answers, without a server."""
    app = FastAPI()
    desk = SimpleNamespace(errands={"0123456789abcdef": failed()})
    app.include_router(operations.routes(cast("Desk", desk)), prefix="/api")
    app.add_exception_handler(UnknownName, api._told)
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    where, _, query = path.partition("?")
    scope = {"type": "http", "method": "GET", "path": where, "query_string": query.encode(), "headers": []}
    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], json.loads(b"".join(one.get("body", b"") for one in sent[1:]))


def test_an_operation_has_its_former_address_and_keys():
    status, found = get("/api/operations/0123456789abcdef?first=1")
    assert status == 200 and found["lines"][0] == "error: no contact with box"
    assert (found["total"], found["explain"], found["hint"]) == (4, "no-contact", "is it on?")
    assert (found["said"], found["more"]) == (found["total"], found["explain"])
    assert found["failure"] == {
        "code": "unreachable",
        "message": "no contact with box",
        "hint": "is it on?",
        "explain": "no-contact",
    }
    assert found["lines"][1:] == ["hint: is it on?", "hint: for details run 'mlw explain no-contact'"]
    assert get("/api/errands/0123456789abcdef?first=1") == (200, found)


@pytest.mark.parametrize("path", ["/api/operations/x", "/api/errands/x"])
def test_an_unknown_operation(path):
    status, found = get(path)
    assert status == 404 and found["error"].startswith("unknown operation 'x'")


def test_an_error_names_its_page_by_both_keys():
    request = Request({"type": "http"})
    found = json.loads(asyncio.run(api._told(request, Unreachable("no contact with box"))).body)
    assert (found["explain"], found["more"]) == ("no-contact", "mlw explain no-contact")
    assert set(json.loads(asyncio.run(api._told(request, ConfigError("it is wrong"))).body)) == {
        "error",
        "hint",
        "code",
    }


def heard(*lines: bytes, code: int) -> MlwError:
    made = Errand("1", ("submit",), 0.0, code=code)
    for line in lines:
        made.hear(line)
    error = made.error()
    assert error is not None
    return error


def record(error: MlwError) -> bytes:
    return json.dumps({"error": Failure.of(error).to_json()}).encode()


@pytest.mark.parametrize(
    "error",
    [UsageError("x", "y"), UnknownName("run", "x", ["y"]), NotFetched("x", more="index-not-reached"), MlwError("x")],
)
def test_an_error_crosses_the_process_border_whole(error):
    found = heard(b"error: another", record(error), code=error.exit_code)
    assert (type(found), Failure.of(found)) == (type(error), Failure.of(error))


def test_a_code_of_no_class_keeps_the_class_of_the_exit_code():
    found = heard(record(SameId("/nowhere")), code=SameId.exit_code)
    assert isinstance(found, ConfigError) and found.code == SameId.code


def test_prose_on_standard_error_is_not_read_back():
    found = heard(b"error: x", b"hint: y", code=HostError.exit_code)
    assert isinstance(found, HostError)
    assert Failure.of(found) == Failure("command-failed", "hint: y")
    assert heard(code=3).message == "mlw exited with code 3"


@pytest.mark.parametrize("line", [b'{"error": 1}', b'{"error": {"code": 3, "message": "x"}}', b'{"error": ', b"\xff"])
def test_a_line_that_is_no_record_is_only_shown(line):
    found = heard(line, code=1)
    assert found.code == "command-failed" and found.message == line.decode("utf-8", "replace")


def test_a_record_before_the_last_line_is_not_the_commands():
    found = heard(record(ConfigError("of the script")), b"last words", code=3)
    assert (found.code, found.message) == ("command-failed", "last words")


def test_a_record_of_several_lines_is_shown_indented():
    made = Errand("1", ("submit",), 0.0)
    made.hear(record(ConfigError("first\nsecond")))
    assert list(made.lines) == ["error: first", "       second"]


def test_former_names_are_deprecated_in_the_description():
    described = openapi()
    assert "/api/operations/{name}" in described["paths"]
    assert not [path for path in described["paths"] if "errand" in path]
    schemas = described["components"]["schemas"]
    for name, former in (("Told", "said"), ("Told", "more"), ("Submitted", "errand"), ("AttachAnswer", "errand")):
        assert schemas[name]["properties"][former]["deprecated"] is True
