"""Detection of runs that make no progress while their GPUs are busy."""

from __future__ import annotations

from mlworkbench.remote.gpus.stall_detector import StallDetector
from mlworkbench.remote.shared.layout import RunFolder

BUSY, IDLE = [100, 99], [100, 40]


class Run:
    """A run folder, a detector with a timeout of 600 s, and a clock."""

    def __init__(self, folder):
        (folder / "metrics").mkdir()
        self.folder, self.now = folder, 0.0
        self.detector = StallDetector(RunFolder(str(folder)))

    def after(self, seconds, utilizations=BUSY, logs=False):
        self.now += seconds
        if logs:
            with open(self.folder / "metrics" / "1", "a") as file:
                file.write("{}\n")
        return self.detector.update(self.now, utilizations)


def test_a_stall_is_reported_once_and_withdrawn(tmp_path):
    run = Run(tmp_path)
    assert [run.after(10, logs=True) for _ in range(5)] == [None] * 5
    assert run.after(10) is None and run.after(580) is None
    found = run.after(20)
    assert found["warning"] == "all GPUs of the run have been busy for 10 min, but it logged and printed nothing"
    assert "collective" in found["diagnosis"]["cause"] and found["diagnosis"]["explain"] == "gpu-stalled"
    assert run.after(1000) is None
    assert run.after(10, logs=True) == {"warning": None, "diagnosis": None}


def test_no_stall(tmp_path):
    run = Run(tmp_path)
    assert [run.after(5000), run.after(5000)] == [None, None], "nothing was logged yet"
    run.after(10, logs=True)
    assert [run.after(550), run.after(10, IDLE), run.after(500)] == [None] * 3, "a GPU was idle in between"
    assert run.after(10, [100, None]) is None and run.after(1000, []) is None, "the utilization is not known"
    (tmp_path / "log").write_text("epoch 2")
    assert [run.after(1), run.after(590)] == [None, None], "something was printed"


def test_a_script_that_logs_rarely_gets_more_time(tmp_path):
    run = Run(tmp_path)
    for _ in range(3):
        run.after(1000, logs=True)
    assert [run.after(10), run.after(4000), run.after(900)] == [None] * 3
    assert run.after(200) is not None
