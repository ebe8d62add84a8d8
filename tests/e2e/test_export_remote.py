"""``history export`` of a run on another machine: what stayed there is brought home first."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.e2e.elsewhere import Away

ANSWERS = {
    "/experiments/get-by-name": {"experiment": {"experiment_id": "7", "lifecycle_stage": "active"}},
    "/runs/create": {"run": {"info": {"run_id": "ab12", "artifact_uri": "mlflow-artifacts:/7/ab12/artifacts"}}},
}


@pytest.fixture
def server():
    """What a server hears: an answer to each question, and the files that were put there."""
    files = {}

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.command == "PUT":
                files[self.path.partition("/7/ab12/artifacts/")[2]] = body
            found = next((answer for end, answer in ANSWERS.items() if end in self.path), {})
            data = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = answer

        def log_message(self, *_):
            pass

    serving = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{serving.server_port}", files
    serving.shutdown()
    serving.server_close()


@pytest.fixture
def ran(laptop, machine):
    """A run whose outputs are still there."""
    away = Away(laptop, machine())
    config = away.project / "aml_config" / f"{away.name}.runconfig"
    config.write_text(re.sub(r"(?m)^#? ?FetchOutputs:.*\n", "", config.read_text()) + "\nFetchOutputs: none\n")
    done = away.submit("work.py", "key")
    assert done.code == 0, done
    assert not list((laptop.folder(done.run) / "work" / "outputs").glob("*"))
    return away, done.run


def test_outputs_that_stayed_on_the_machine(ran, server):
    away, run = ran
    uri, files = server
    sent = away.mlw("history", "export", run, "--mlflow", uri)
    assert sent.code == 0, sent
    assert files["result.txt"] == b"key" * 1000 and b"key 19\n" in files["mlw/log.txt"]


def test_a_machine_that_is_gone_costs_its_outputs_only(ran, server):
    away, run = ran
    uri, files = server
    away.host.stop_sshd(sessions=True)
    sent = away.mlw("history", "export", run, "--mlflow", uri)
    assert sent.code == 1 and "cannot fetch outputs" in sent.err, sent
    assert "result.txt" not in files and b"key 19\n" in files["mlw/log.txt"]
    assert away.mlw("history", "export", run).code == 0
