"""Requests to an MLflow server and the handling of its responses, with a small test server."""

from __future__ import annotations

import base64
import json
import posixpath
import re
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlworkbench.errors import HostError, Unreachable, UsageError
from mlworkbench.export.mlflow import rest_client as mlflowrest
from mlworkbench.export.mlflow.batches import pair_batches, split
from mlworkbench.export.mlflow.metric_upload import log_points
from mlworkbench.export.mlflow.name_mapping import MAX_NAME_LENGTH, NameMapper, truncate, valid_name
from mlworkbench.export.mlflow.remote_run import RemoteRun
from mlworkbench.export.mlflow.rest_client import RequestRejected, Server
from mlworkbench.export.mlflow.run_export import _generations
from mlworkbench.export.mlflow.run_mapping import Point, numeric_points, params_of, tags_of
from mlworkbench.export.mlflow.server_limits import ServerLimits, limits_of
from mlworkbench.history.series.series_store import Series
from mlworkbench.model import Annotations
from tests.unit.export.test_export import item


class ScriptedServer:
    """An HTTP server that returns the given responses in order and records the requests."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.asked.append((self.command, self.path, dict(self.headers), body))
                code, headers, data = outer.answers.pop(0) if outer.answers else (200, {}, b"{}")
                self.send_response(code)
                for name, value in {"Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = answer

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.uri = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(mlflowrest, "_PAUSE", 0)


def error_text(error):
    return f"{error.message} {error.hint}"


# -- requests ------------------------------------------------------------------------------------------


def test_who_we_are_is_told_by_mlflows_own_variables():
    with ScriptedServer() as there:
        Server(there.uri, {}).get("runs/get", run_id="a b")
        Server(there.uri + "/", {"MLFLOW_TRACKING_USERNAME": "me", "MLFLOW_TRACKING_PASSWORD": "pw"}).post(
            "x", {"a": 1}
        )
        Server(there.uri, {"MLFLOW_TRACKING_TOKEN": "tok"}).post("x", {})
    (_, path, plain, _), (_, _, basic, body), (_, _, token, _) = there.asked
    assert path == "/api/2.0/mlflow/runs/get?run_id=a+b" and "Authorization" not in plain
    assert basic["Authorization"] == "Basic " + base64.b64encode(b"me:pw").decode()
    assert json.loads(body) == {"a": 1}
    assert token["Authorization"] == "Bearer tok"


def test_no_redirect_gets_the_password():
    with ScriptedServer() as other, ScriptedServer((302, {"Location": other.uri + "/x"}, b"")) as there:
        with pytest.raises(HostError) as caught:
            Server(there.uri, {"MLFLOW_TRACKING_TOKEN": "tok"}).get("x")
        assert other.asked == [] and other.uri in error_text(caught.value) and "tok" not in error_text(caught.value)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((401, {}, b"no"), "MLFLOW_TRACKING_USERNAME"),
        ((403, {}, b"no"), "refused the login (HTTP 403)"),
        ((404, {}, b"<html>"), "is not an MLflow server (HTTP 404)"),
        ((200, {}, b"<html>"), "is not an MLflow server"),
        ((200, {}, b"[1]"), "is not an MLflow server"),
        ((200, {}, b"[" * 100_000), "is not an MLflow server"),
        ((400, {}, b'{"error_code": "INVALID", "message": "too\\nlong"}'), "refused: too long"),
        ((500, {}, b'{"error_code": 5}'), "refused: 5"),
    ],
)
def test_troubles_in_one_sentence(answer, words):
    with ScriptedServer(answer) as there, pytest.raises(HostError) as caught:
        Server(there.uri, {}).get("x")
    assert words in error_text(caught.value)


def test_what_passes_is_tried_again_and_what_must_not_happen_twice_is_not():
    busy = (503, {}, b"")
    with ScriptedServer(busy, busy, (200, {}, b'{"a": 1}')) as there:
        assert Server(there.uri, {}).post("x", {}) == {"a": 1}
    with ScriptedServer(busy) as there:
        with pytest.raises(HostError, match="failed"):
            Server(there.uri, {}).post("runs/create", {}, retry=False)
        assert len(there.asked) == 1
    with ScriptedServer(*[busy] * 5) as there:
        with pytest.raises(HostError, match="failed"):
            Server(there.uri, {}).get("x")
        assert len(there.asked) == 5


def test_nobody_answers():
    with ScriptedServer() as there:
        pass
    with pytest.raises(Unreachable, match=f"cannot connect to the MLflow server at {there.uri}"):
        Server(there.uri, {}).get("x")


def test_a_file_is_sent_as_long_as_it_was(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"x" * 100_000)
    with ScriptedServer((503, {}, b"")) as there, open(path, "rb") as file:
        Server(there.uri, {}).put("mlflow-artifacts:/1/ab/artifacts", "a b/ü.txt", file, 99_999)
    assert [len(body) for *_, body in there.asked] == [99_999, 99_999], "again, from its begin"
    assert there.asked[1][1] == "/api/2.0/mlflow-artifacts/artifacts/1/ab/artifacts/a%20b/%C3%BC.txt"


def test_artifacts_of_another_host_do_not_get_this_ones_password(tmp_path):
    (tmp_path / "f").write_bytes(b"")
    with (
        ScriptedServer() as there,
        open(tmp_path / "f", "rb") as file,
        pytest.raises(HostError, match="another server"),
    ):
        Server(there.uri, {}).put("mlflow-artifacts://elsewhere/1/a", "f", file, 0)
    assert there.asked == []


@pytest.mark.parametrize(
    "uri",
    [
        "sqlite:///x",
        "file:///x",
        "http://",
        "x",
        "http://a:b@c",
        "http://[",
        "http://a:9x",
        "http://a/?q=1",
        "databricks",
    ],
)
def test_an_address_that_is_none(uri):
    with pytest.raises(UsageError):
        Server(uri, {})


def test_mlflows_word_for_a_refusal():
    with (
        ScriptedServer((404, {}, b'{"error_code": "RESOURCE_DOES_NOT_EXIST"}')) as there,
        pytest.raises(RequestRejected) as caught,
    ):
        Server(there.uri, {}).get("x")
    assert caught.value.error_code == "RESOURCE_DOES_NOT_EXIST"


# -- names and values ----------------------------------------------------------------------------------


def takes(name):
    """Return whether MLflow accepts the name, by the rules of its utils/validation.py."""
    norm = posixpath.normpath(name)
    path = norm != name or norm == "." or norm.startswith("..") or norm.startswith("/")
    return bool(name) and len(name) <= MAX_NAME_LENGTH and re.match(r"^[/\w.\- :]*$", name) is not None and not path


names = st.one_of(st.text(max_size=12), st.text(alphabet="./a_ :*", max_size=8), st.text(min_size=245, max_size=260))


@given(st.lists(names, max_size=12))
def test_names_are_taken_and_no_two_become_one(given):
    map_name = NameMapper()
    found = [map_name(name) for name in given]
    assert all(takes(name) for name in found), found
    assert len(set(found)) == len(set(given))
    assert [map_name(name) for name in given] == found


@given(names)
def test_a_good_name_stays(name):
    assert valid_name(name) == name or not takes(name) or name != name.strip()


@pytest.mark.parametrize(
    ("version", "limits"),
    [
        ("", ServerLimits()),
        ("<html>", ServerLimits()),
        ("2.9.2", ServerLimits("2.9")),
        ("2.16.0", ServerLimits("2.16", has_colon=True)),
        ("2.22.4", ServerLimits("2.22", has_colon=True, tag_length=8000)),
        ("3.17.2", ServerLimits("3.17", True, 8000, True, True)),
    ],
)
def test_limits_by_version(version, limits):
    assert limits_of(version) == limits
    assert valid_name("a:b", colon=limits.has_colon) == ("a:b" if limits.has_colon else "a_b")


def test_files_keep_their_ending():
    of_files = NameMapper(for_files=True)
    assert [of_files(name) for name in ("a#.txt", "a%.txt", "b/ü.txt")] == ["a_.txt", "a_-2.txt", "b/ü.txt"]
    assert of_files.changed() == {"a#.txt": "a_.txt", "a%.txt": "a_-2.txt"}


def test_what_is_too_long_is_cut():
    assert truncate("x" * 10, 10) == "x" * 10 and truncate("x" * 11, 10) == "x" * 8 + " …"
    truncate("\udcff", 10).encode()


@given(st.lists(st.text(max_size=50), max_size=300), st.integers(1, 100))
def test_batches_hold_all_in_order_and_not_too_many(texts, most):
    entries = [{"key": str(at), "value": text} for at, text in enumerate(texts)]
    found = list(split(entries, most))
    assert [one for batch in found for one in batch] == entries
    assert all(0 < len(batch) <= most for batch in found)


def test_a_batch_is_not_too_long():
    entries = [{"key": str(at), "value": "ü" * 6000} for at in range(100)]
    sizes = [len(json.dumps(batch, ensure_ascii=False).encode()) for batch in split(entries, 100)]
    assert max(sizes) < 1_000_000 and len(sizes) > 1


# -- conversion of a run -------------------------------------------------------------------------------


def test_params_and_tags(tmp_path):
    given = item(tmp_path, params={"list": [1, nan], "flag": True, "none": 0.5}, told_tags={"mlflow.autologging": "x"})
    noted = Annotations(note="n" * 9000, tags=("a=b=c", "plain", "=odd"))
    given = replace(given, run=replace(given.run, noted=noted))
    params = params_of(given, NameMapper())
    assert (params["list"], params["flag"], params["none"]) == ('[1, "NaN"]', "True", "0.5")
    tags = tags_of(given, NameMapper(), 5000)
    assert (tags["a"], tags["plain"], tags["_odd"]) == ("b=c", "", "")
    assert tags["mlflow.autologging"] == "x" and tags["mlw.run_id"] == given.run.id
    assert 4000 < len(tags["mlflow.note.content"]) <= 5000


def test_a_tag_cannot_pose_as_one_of_ours(tmp_path):
    given = item(tmp_path, told_tags={"mlw.run_id": "another", "mlflow.parentRunId": "x", "mlflow.user": "root"})
    tags = tags_of(given, NameMapper(), 5000)
    assert tags["mlw.run_id"] == given.run.id and "mlflow.parentRunId" not in tags


def test_points_without_a_step_are_numbered(tmp_path):
    lines = [{"n": "a", "v": value, "t": 1.0, "i": value} for value in range(3)]
    lines += [{"n": "b", "v": 1.0, "t": 1.0, "s": 7, "i": 4}, {"n": "b", "v": 2.0, "t": 2.0, "i": 5}]
    given = item(tmp_path, lines=lines)
    with Series(given.folder) as series:
        assert [point.step for point in numeric_points(series, "a", None)] == [0, 1, 2]
        assert [point.step for point in numeric_points(series, "b", None)] == [7, 7]


def test_points_are_equal_as_mlflows_database_has_them():
    assert Point(1, 2, inf).identity == Point(1, 2, 1.7976931348623157e308).identity
    assert Point(1, 2, nan).identity == Point(1, 2, nan).identity != Point(1, 2, 0.0).identity
    assert Point(1, 2, nan).to_json("x")["value"] == "NaN"


def test_parents_go_first(tmp_path):
    given = {}
    for name, parent in (("c", "b"), ("b", "a"), ("a", None), ("d", "a"), ("x", "y"), ("y", "x"), ("e", "gone")):
        one = item(tmp_path / name)
        given[name] = replace(one, run=replace(one.run, spec=replace(one.run.spec, id=name, parent=parent)))
    order = [{one.run.id for one in generation} for generation in _generations(list(given.values()))]
    assert order == [{"a", "e"}, {"b", "d"}, {"c"}, {"x", "y"}], "a cycle ends"


def test_parameters_and_tags_share_requests():
    params, tags = (
        [{"key": f"{kind}{at}", "value": ""} for at in range(count)] for kind, count in (("p", 150), ("t", 20))
    )
    found = list(pair_batches(params, tags))
    assert [{name: len(batch) for name, batch in body.items()} for body in found] == [
        {"params": 100, "tags": 20},
        {"params": 50},
    ]


def test_every_request_with_points_is_within_mlflows_limits(tmp_path):
    given = item(
        tmp_path, lines=[{"n": "loss", "v": value, "t": 1.0, "s": value, "i": value} for value in range(2 * 999)]
    )
    sent = []
    with ScriptedServer() as there, Server(there.uri, {}) as client:
        remote = RemoteRun("1", "0", "", {}, {}, frozenset())
        log_points(client, remote, given, NameMapper(), lambda kind, count: sent.append((kind, count)))
    bodies = [json.loads(body) for *_, body in there.asked]
    assert [[len(body["metrics"]), len(body["tags"])] for body in bodies] == [[999, 0], [999, 1]]
    assert sent == [("points", 999)] * 2
    assert [point["step"] for body in bodies for point in body["metrics"]] == list(range(2 * 999))


def test_points_of_an_earlier_export_are_not_sent_again(tmp_path):
    lines = [{"n": "loss", "v": value, "t": 1.0, "s": 0, "i": at} for at, value in enumerate((0.5, nan, inf, -2.0))]
    given = item(
        tmp_path, lines=[{**line, "v": str(line["v"]) if line["v"] != line["v"] else line["v"]} for line in lines]
    )
    page = {"metrics": [{"key": "loss", "value": 0.5, "timestamp": "1000", "step": "0"}], "next_page_token": "more"}
    rest = {
        "metrics": [
            {"key": "loss", "value": "NaN", "timestamp": 1000},
            {"value": 1.7976931348623157e308, "timestamp": 1000},
        ]
    }
    answers = [(200, {}, json.dumps(answer).encode()) for answer in (page, rest)]
    with ScriptedServer(*answers) as there, Server(there.uri, {}) as client:
        remote = RemoteRun("1", "0", "", {}, {}, frozenset({"loss"}))
        log_points(client, remote, given, NameMapper(), lambda *_: None)
    assert [point["value"] for point in json.loads(there.asked[-1][3])["metrics"]] == [-2.0]
