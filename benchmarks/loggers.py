"""A script that logs like a training, with one library. Measures the cost of a call and the time until all is on disk.

    python loggers.py LIBRARY CALLS FOLDER

recording.py runs this script with the Python of the library's virtual environment.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BURSTS = 20
STEPS, TURNS = 40, 20  # training steps per measurement; pairs of measurements, one with and one without log calls
Log = Callable[[float, int], Any]
Finish = Callable[[], Any]


def mlworkbench(folder: Path) -> tuple[Log, Finish]:
    _begin_run(folder)
    from mlworkbench import flush, log  # noqa: PLC0415 - only this contestant needs it

    return lambda value, step: log("loss", value, step), flush


def _begin_run(folder: Path) -> None:
    os.environ.update(MLW_RUN_ID="bench", MLW_RUN_FOLDER=str(folder), MLFLOW_TRACKING_URI="mlw:run")
    (folder / "work" / "outputs").mkdir(parents=True)
    os.chdir(folder / "work")
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src" / "mlworkbench" / "remote" / "inrun"))


def mlflow(folder: Path) -> tuple[Log, Finish]:
    return _mlflow(f"sqlite:///{folder}/mlflow.db")


def mlflow_file(folder: Path) -> tuple[Log, Finish]:
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    return _mlflow((folder / "mlruns").as_uri())


def mlflow_in_mlw(folder: Path) -> tuple[Log, Finish]:
    _begin_run(folder)
    from mlworkbench import flush  # noqa: PLC0415 - only this contestant needs it

    log, finish = _mlflow(None)
    return log, lambda: (finish(), flush())


def _mlflow(uri: str | None) -> tuple[Log, Finish]:
    import mlflow  # noqa: PLC0415 - only these contestants need it

    if uri:
        mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("bench")
    mlflow.start_run()
    return lambda value, step: mlflow.log_metric("loss", value, step=step), mlflow.end_run


def wandb(folder: Path) -> tuple[Log, Finish]:
    places = dict.fromkeys(("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"), str(folder))
    os.environ.update(WANDB_SILENT="true", **places)
    import wandb  # noqa: PLC0415 - only this contestant needs it

    run = wandb.init(mode="offline", project="bench", dir=str(folder))
    return lambda value, step: run.log({"loss": value}, step=step), run.finish


def trackio(folder: Path) -> tuple[Log, Finish]:
    os.environ["TRACKIO_DIR"] = os.environ["HF_HOME"] = str(folder)
    import trackio  # noqa: PLC0415 - only this contestant needs it

    trackio.init(project="bench")
    return lambda value, step: trackio.log({"loss": value}, step=step), trackio.finish


class Training:
    """A small network of three layers, batches of 512 images of 28 x 28, with numpy on one core."""

    def __init__(self) -> None:
        import numpy  # noqa: PLC0415 - only this contestant needs it

        self._relu = numpy.maximum
        dice = numpy.random.default_rng(1)
        self._images, self._labels = dice.random((512, 784)), dice.random((512, 10))
        self._layers = [dice.random(shape) / 100 for shape in ((784, 512), (512, 256), (256, 10))]

    def step(self) -> float:
        """Run one forward and backward pass, and return the loss."""
        seen = [self._images]
        for layer in self._layers[:-1]:
            seen.append(self._relu(seen[-1] @ layer, 0))
        error = seen[-1] @ self._layers[-1] - self._labels
        loss = float((error * error).mean())
        for layer, before in zip(reversed(self._layers), reversed(seen), strict=True):
            change = before.T @ error
            error = error @ layer.T * (before > 0)
            layer -= 1e-7 * change
        return loss


class Slowdown:
    """Compare the same steps with and without a log call, alternating which comes first.

    Also measure the time of a call in a training, where the other work has displaced it from the CPU caches, and the
    CPU time of writing. The variant with log calls waits until everything is written, which a training does not.
    """

    def __init__(self, folder: Path) -> None:
        _, self._finish = mlworkbench(folder)
        self._training = Training()
        self._calls: list[float] = []
        self._clocks: list[float] = []  # time of reading the clock twice, which is part of each call's time
        self._writing = 0.0

    def measure(self) -> dict[str, float]:
        for _ in range(2):
            self._logging(), self._plain()
        self._calls, self._clocks, self._writing = [], [], 0.0
        plain, more = [], []
        for turn in range(TURNS):
            first, second = (self._logging, self._plain) if turn % 2 else (self._plain, self._logging)
            taken = {first: first(), second: second()}
            plain.append(taken[self._plain] / STEPS)
            more.append(taken[self._logging] / taken[self._plain] - 1)
        low, high = _interval(more)
        clocks = sum(self._clocks) / len(self._clocks)
        call, writing = sum(self._calls) / len(self._calls) - clocks, self._writing / len(self._calls)
        return {"step": sorted(plain)[TURNS // 2], "call": call, "writing": writing, "low": low, "high": high}

    def _plain(self) -> float:
        began = time.perf_counter()
        for _ in range(STEPS):
            self._training.step()
            before = time.perf_counter()
            self._clocks.append(time.perf_counter() - before)
        return time.perf_counter() - began

    def _logging(self) -> float:
        from mlworkbench import log  # noqa: PLC0415 - only this contestant needs it

        began = time.perf_counter()
        others = time.process_time() - time.thread_time()
        for step in range(STEPS):
            loss = self._training.step()
            before = time.perf_counter()
            log("loss", loss, step)
            self._calls.append(time.perf_counter() - before)
        self._writing += time.process_time() - time.thread_time() - others
        before = time.thread_time()
        self._finish()  # write the remaining points
        self._writing += time.thread_time() - before
        return time.perf_counter() - began


def _interval(values: list[float]) -> tuple[float, float]:
    """Return the 95% confidence interval of the median, from ranks, which are robust against outliers."""
    values, half = sorted(values), 0.98 * len(values) ** 0.5
    return values[int(len(values) / 2 - half)], values[min(len(values) - 1, int(len(values) / 2 + half))]


def _call(log: Log, count: int) -> float:
    """Return the median seconds per call. Calls come in bursts, because a training also works between log calls."""
    taken = []
    for burst in range(BURSTS):
        began = time.perf_counter()
        for step in range(burst * count, burst * count + count):
            log(0.123456789 * step, 200 + step)
        taken.append((time.perf_counter() - began) / count)
        time.sleep(0.1)
    return sorted(taken)[BURSTS // 2]


def main() -> None:
    library, calls, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    folder.mkdir(parents=True)
    if library == "training":
        sys.stdout.write("\n" + json.dumps(Slowdown(folder).measure()) + "\n")
        return
    log, finish = globals()[library](folder)
    for step in range(min(100, calls // 10)):  # warm up: do not measure the one-time work of the first calls
        log(0.5, step)
    call = _call(log, min(calls // BURSTS, 5000))
    began = time.perf_counter()
    for step in range(10**6, 10**6 + calls):
        log(1 / step, step)
    looped = time.perf_counter() - began
    finish()
    ended = time.perf_counter() - began
    result = {"call": call, "row": looped / calls, "all": ended / calls}
    sys.stdout.write("\n" + json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
