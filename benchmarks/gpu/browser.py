"""Check the data that `mlw ui` shows for a real NVIDIA GPU: gauges during a training, verdict, and charts. Usage:

    python3 benchmarks/gpu/browser.py --out FOLDER --wheels FOLDER

Python must have PyTorch with CUDA; the wheels are those of mlworkbench[ui] (nothing is downloaded). Uses the server's
HTTP API as pages do. Writes FOLDER/browser.md, and exits with 1 if a check fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from prove import Bench  # benchmarks/gpu/prove.py

TRAIN = """
import time, torch
import mlworkbench
x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
w = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16, requires_grad=True)
begun, step = time.time(), 0
while time.time() - begun < 20:
    loss = ((x @ w).float() ** 2).mean()
    w.grad = None
    loss.backward()
    mlworkbench.log("loss", float(loss), step=step)
    step += 1
print("steps", step)
"""


class Server:
    """A running `mlw ui`, and its API."""

    def __init__(self, place: Path, wheels: str) -> None:
        bench = Bench(place, wheels)
        bench.prepare()
        (bench.project / "logged.py").write_text(TRAIN)
        begun = time.monotonic()
        command = [sys.executable, "-m", "mlworkbench", "ui", "--no-browser"]
        self.process = subprocess.Popen(command, cwd=bench.project, env=bench.env)
        facts = place / "store" / "ui" / "server.json"
        while not facts.exists():
            time.sleep(0.05)
        connection = json.loads(facts.read_text())
        self.address, self.token = connection["address"], connection["token"]
        self.key = self.ask("/api/projects")[0]["key"]
        self.ready = time.monotonic() - begun

    def ask(self, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if answer.headers.get_content_type() == "application/json" else text

    def gpu(self) -> dict[str, Any]:
        answer = self.ask(f"/api/targets/local/gpus?project={self.key}")
        return dict(answer["gpus"][0])


def prove(server: Server) -> list[str]:
    lines = [f"The server answered {server.ready:.2f} s after its start.", ""]
    before = server.gpu()
    run = server.ask("/api/submit", {"project": server.key, "configuration": "local", "script": "logged.py"})["run"]
    seen = []
    while server.ask(f"/api/runs/{run}")["status"] not in ("Completed", "Failed", "Canceled"):
        one = server.gpu()
        seen.append((one["utilisation"], one["memory_used"], one["power"] or 0, one["used_by"] or ""))
        time.sleep(1)
    record = server.ask(f"/api/runs/{run}")
    machine = server.ask(f"/api/runs/{run}/machine")
    lines += [f"- {before['name']}; before: {before['utilisation']} %, {before['memory_used'] / 2**30:.1f} GiB used"]
    busy = [one for one in seen if one[0] and one[0] > 50]
    lines += [f"- gauges while it ran: {len(seen)} looks, utilisation {sorted(one[0] for one in seen)} %"]
    most, power = max(one[1] for one in seen) / 2**30, max(one[2] for one in seen)
    lines += [f"- memory up to {most:.1f} GiB, power up to {power:.0f} W"]
    lines += [f"- the run is named beside its process: {any(run in one[3] for one in seen)}"]
    lines += [f"- verdict: {record['gpu'].get('line')}"]
    for label, name in (curve for gauge in machine for curve in gauge["curves"]):
        drawn = server.ask(f"/api/runs/{run}/machine/series?name={name}")
        lines.append(f"- chart {label}: {drawn['count']} points, {drawn['least']:g} to {drawn['greatest']:g}")
    pages = (f"/p/{server.key}/targets", f"/runs/{run}", f"/runs/{run}?tab=metrics")
    lines += [f"- page {page}: {len(server.ask(page))} bytes" for page in pages]
    sound = busy and record["status"] == "Completed" and record["gpu"]["used"] == "yes" and machine
    return [*lines, "", "Everything was as it should be." if sound else "**Something was not as it should be.**"]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--wheels", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        server = Server(Path(place), options.wheels)
        try:
            lines = prove(server)
        finally:
            server.process.terminate()
            server.process.wait(20)
    title = "# `mlw ui` on a machine with an NVIDIA GPU\n\n`benchmarks/gpu/browser.py`.\n\n"
    (options.out / "browser.md").write_text(title + "\n".join(lines) + "\n")
    print("\n".join(lines))
    return int("not" in lines[-1])


if __name__ == "__main__":
    sys.exit(main())
