"""``history export`` of a remote run: outputs that are still on the machine are fetched first."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.e2e.remote_target import RemoteTarget

ANSWERS = {
    "/experiments/get-by-name": {"experiment": {"experiment_id": "7", "lifecycle_stage": "active"}},
    "/runs/create": {"run": {"info": {"run_id": "ab12", "artifact_uri": "mlflow-artifacts:/7/ab12/artifacts"}}},
}


@pytest.fixture
def server():
    """A server that responds to every request and records uploaded files."""
    files = {}

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.command == "PUT":
                files[self.path.partition("/7/ab12/artifacts/")[2]] = body
            result = next((answer for end, answer in ANSWERS.items() if end in self.path), {})
            data = json.dumps(result).encode()
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
    """A run whose outputs are still on the machine."""
    remote = RemoteTarget(laptop, machine())
    config = remote.project / "aml_config" / f"{remote.name}.runconfig"
    config.write_text(re.sub(r"(?m)^#? ?FetchOutputs:.*\n", "", config.read_text()) + "\nFetchOutputs: none\n")
    done = remote.submit("work.py", "key")
    assert done.code == 0, done
    assert not list((laptop.folder(done.run) / "work" / "outputs").glob("*"))
    return remote, done.run


def test_remote_outputs_are_fetched_first(ran, server):
    remote, run = ran
    uri, files = server
    sent = remote.mlw("history", "export", run, "--mlflow", uri)
    assert sent.code == 0, sent
    assert files["result.txt"] == b"key" * 1000 and b"key 19\n" in files["mlw/log.txt"]


def test_unreachable_machine_skips_only_its_outputs(ran, server):
    remote, run = ran
    uri, files = server
    remote.host.stop_sshd(sessions=True)
    sent = remote.mlw("history", "export", run, "--mlflow", uri)
    assert sent.code == 1 and "cannot fetch outputs" in sent.err, sent
    assert "result.txt" not in files and b"key 19\n" in files["mlw/log.txt"]
    assert remote.mlw("history", "export", run).code == 0
