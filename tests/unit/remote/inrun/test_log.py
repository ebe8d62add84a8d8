"""The in-run library in old and new Pythons (see run_process.py), tested by the files that its processes write."""

import ast
import json
import os
import re
import signal
import sys
import time

import pytest

from .run_process import EVERY_PYTHON, INRUN, ON_POSIX, PYTHONS, parse_lines, version_names

# -- values, names, steps ------------------------------------------------------------------------------------


VALUES = """
    import array, collections, enum

    class Scalar(object):                       # numpy's scalars have both methods
        def __init__(self, value): self.value = value
        def item(self): return self.value
        def tolist(self): return self.value

    class Item(object):                         # a tensor of one element in some libraries
        def item(self): return 0.25

    class Array(object):
        def __init__(self, value): self.value = value
        def item(self): raise ValueError("can only convert an array of size 1")
        def tolist(self): return self.value

    class LongDouble(object):
        def tolist(self): return self
        item = tolist
        def __float__(self): return 1.5

    class Float64(float):                       # numpy.float64 is a float
        def __repr__(self): return "Float64(%s)" % float(self)

    class Text(str):
        def __str__(self): return "not the text itself"

    class Level(enum.IntEnum):
        high = 3

    Pair = collections.namedtuple("Pair", "a b")

    VALUES = {
        "int": 7, "negative": -7, "big": 2 ** 63, "bigger": -10 ** 400, "zero": 0,
        "float": 0.1, "tiny": 5e-324, "huge": 1.7976931348623157e308, "negative zero": -0.0, "whole": 3.0,
        "nan": float("nan"), "inf": float("inf"), "-inf": float("-inf"),
        "str": "caf\\u00e9 \\U0001f600 \\n \\0 \\" \\\\ \\ud800", "empty": "", "word NaN": "NaN",
        "true": True, "false": False, "none": None,
        "scalar": Scalar(0.5), "scalar nan": Scalar(float("nan")), "scalar bool": Scalar(True),
        "item": Item(),
        "array": Array([[1, 2.5], [float("inf"), 4]]), "0-d": Array(6), "long double": LongDouble(),
        "float64": Float64(0.75), "subclass": Text("text"), "enum": Level.high,
        "list": [1, 2.5, "x", None, True], "tuple": (1, (2, [3])), "namedtuple": Pair(1, Scalar(2)),
        "nothing": [], "mixed": ["NaN", float("nan"), float("-inf")],
        "array.array": array.array("d", [1.0, 2.0]),
        "name with spaces, #, . and \\n": 1, "n\\ud800": 3, "x" * 10240: 4, "\\U0001f600" * 2560: 5,
    }
"""


@EVERY_PYTHON
def test_values_are_preserved(runner):
    runner.run(
        VALUES
        + """
    from mlworkbench import log
    for name, value in VALUES.items():
        log(name, value)
    """
    )
    expected = {
        "int": 7,
        "negative": -7,
        "big": 2**63,
        "bigger": float("-inf"),
        "zero": 0,
        "float": 0.1,
        "tiny": 5e-324,
        "huge": 1.7976931348623157e308,
        "negative zero": -0.0,
        "whole": 3.0,
        "nan": float("nan"),
        "inf": float("inf"),
        "-inf": float("-inf"),
        "str": 'café \U0001f600 \n \0 " \\ \ud800',
        "empty": "",
        "word NaN": "NaN",
        "true": True,
        "false": False,
        "none": None,
        "scalar": 0.5,
        "scalar nan": float("nan"),
        "scalar bool": True,
        "item": 0.25,
        "array": [[1, 2.5], [float("inf"), 4]],
        "0-d": 6,
        "long double": 1.5,
        "float64": 0.75,
        "subclass": "text",
        "enum": 3,
        "list": [1, 2.5, "x", None, True],
        "tuple": [1, [2, [3]]],
        "namedtuple": [1, 2],
        "nothing": [],
        "mixed": ["NaN", float("nan"), float("-inf")],
        "array.array": [1.0, 2.0],
        "name with spaces, #, . and \n": 1,
        "n\ud800": 3,
        "x" * 10240: 4,
        "\U0001f600" * 2560: 5,
    }
    # repr distinguishes 1, 1.0, and True, and -0.0 from 0.0, and makes nan equal to nan
    values = {name: repr(value) for name, value, _ in runner.points()}
    assert values == {name: repr(value) for name, value in expected.items()}


@ON_POSIX
@pytest.mark.parametrize("count", [1, 1000])
def test_a_script_that_kills_itself_keeps_the_first_point(runner, count):
    runner.run(
        """
        import os
        from mlworkbench import log
        for i in range(COUNT): log("a", i)
        os.kill(os.getpid(), 9)
        """.replace("COUNT", str(count)),
        code=-9,
    )
    values = [value for _, value, _ in runner.points()]
    assert values
    assert values == list(range(len(values)))


@EVERY_PYTHON
def test_a_script_that_logs_rarely_writes_in_the_call(runner):
    runner.run(
        """
        import os, threading, time
        from mlworkbench import log
        from mlworkbench._log import log_point
        start = time.time()
        for i in range(5): log_point("a", i, start + i)
        assert threading.active_count() == 1
        os._exit(0)
        """
    )
    assert [value for name, value, _ in runner.points() if name == "a"] == list(range(5))


@ON_POSIX
def test_at_most_a_tenth_of_a_second_of_points_waits(runner):
    """No wait of the thread is longer, and after each one, all points that were logged before are in the file."""
    runner.run(
        """
        import glob, os, threading, types
        import mlworkbench._writer as writer
        from mlworkbench import log, run

        waits, waiting, timeout = [], threading.Semaphore(0), threading.Semaphore(0)

        class Lock(object):     # the thread waits until another one releases this lock, or for a time
            def acquire(self, blocking=True, seconds=None):
                if seconds is None:
                    return True
                waits.append(seconds)
                waiting.release()
                timeout.acquire()
                return False

        def lines():
            return sum(open(path).read().count("\\n") for path in glob.glob(run.folder + "/metrics/*"))

        writer.threading = types.SimpleNamespace(**dict(vars(threading), Lock=Lock))
        for burst in range(1, 4):
            for i in range(1000): log("a", i)
            if burst == 1: waiting.acquire()
            assert lines() < burst * 1000
            timeout.release()
            waiting.acquire()
            assert lines() == burst * 1000
        assert len(waits) == 4 and max(waits) <= 0.1, waits
        os.kill(os.getpid(), 9)
        """,
        code=-9,
    )
    assert [value for _, value, _ in runner.points()] == 3 * list(range(1000))


@ON_POSIX
def test_the_thread_ends_after_a_burst(runner):
    """The next burst starts it again."""
    runner.run(
        """
        import glob, os, threading, time
        from mlworkbench import log, run
        def lines():
            return sum(open(path).read().count("\\n") for path in glob.glob(run.folder + "/metrics/*"))
        for burst in range(1, 3):
            for i in range(1000): log("a", i)
            while lines() < burst * 1000: time.sleep(0.01)
            while threading.active_count() > 1: time.sleep(0.01)
        os.kill(os.getpid(), 9)
        """,
        code=-9,
    )
    assert [value for _, value, _ in runner.points()] == [*range(1000), *range(1000)]


def test_format_of_lines(current_runner):
    current_runner.run(
        """
        import time
        from mlworkbench import log
        time.time = None    # the library has its own hold on the clock
        log("loss", 0.5, step=3)
        log("loss", float("nan"))
        log("row", [0.5, float("-inf")])
        """
    )
    (file,) = current_runner.metrics.iterdir()
    pid, _, rest = file.name.partition("-")
    assert pid.isdigit()
    assert re.fullmatch("[0-9a-f]{16}", rest)
    if os.name == "posix":
        assert file.stat().st_mode & 0o777 == 0o600
    assert [re.sub(r"\d{10}\.\d{6}", "T", line) for line in file.read_text().splitlines()] == [
        '{"n": "loss", "v": 0.5, "t": T, "s": 3, "i": 1}',
        '{"n": "loss", "v": "NaN", "f": 1, "t": T, "i": 2}',
        '{"n": "row", "v": [0.5, {"f": "-Infinity"}], "t": T, "i": 3}',
    ]


def test_points_have_the_time_of_the_call(current_runner):
    bounds = current_runner.run(
        """
        import time
        from mlworkbench import log
        for nth in range(3):
            before = time.time()
            log("a", nth)
            print(before, time.time())
        """
    )
    (file,) = current_runner.files()
    for line, bound in zip(file, bounds.splitlines(), strict=True):
        before, after = (float(word) for word in bound.split())
        assert before - 1e-6 <= line["t"] <= after + 1e-6


def test_dicts_and_steps(runner):
    runner.run(
        """
        from mlworkbench import log

        class Int64(object):
            def item(self): return 9

        class Number(float): pass

        log({"a": 1, "b": 2.5}, step=3)
        log({"a": 2}, 4)
        log({"a": 3})
        log({})
        for step in (0, -1, 2 ** 63 - 1, -2 ** 63, 5.0, Number(6), True, Int64(), None):
            log("s", 1.5, step)
            log("s", "x", step=step)
        """
    )
    steps = [0, -1, 2**63 - 1, -(2**63), 5, 6, 1, 9, None]
    points = runner.points()
    assert points[:4] == [("a", 1, 3), ("b", 2.5, 3), ("a", 2, 4), ("a", 3, None)]
    assert points[4:] == [("s", value, step) for step in steps for value in (1.5, "x")]


def test_invalid_values_raise_and_record_nothing(runner):
    out = runner.run(
        """
        import datetime, json
        from mlworkbench import log

        class Gives(object):
            def __init__(self, value): self.value = value
            def tolist(self): return self.value

        class Odd(object): pass

        round_about = []
        round_about.append(round_about)
        deep = Gives(1)
        for _ in range(100):
            deep = Gives([deep])

        for arguments in [
            ("v", {"b": 1}), ({"a": 1, "v": {"b": 1}},), ("v", [1, {"b": 1}]), ("v", Odd()), ("v", Odd),
            ("v", b"x"), ("v", 1j), ("v", {1}), ("v", Gives(datetime.datetime(2020, 1, 1))), ("v", Gives),
            ("v", lambda: 1),
            ("v",), (1, 2), (None, 2), (b"n", 2), ({1: 2},), ({"a": 1}, 2, 3),
            ("v", 1, "3"), ("v", 1, 2.5), ("v", 1, float("nan")), ("v", 1, [1]), ({"a": 1}, "x"),
            ("", 1), (" \t", 1), ({"": 1},), ("v", round_about), ("v", deep), ("v", 1, 2 ** 63), ("v", 1, -2 ** 63 - 1),
            ("x" * 10241, 1), ("\\u00e9" * 5121, 1), ({"x" * 10241: 1},),
        ]:
            try:
                log(*arguments)
            except Exception as error:
                print(json.dumps([type(error).__name__, str(error)]))
            else:
                print(json.dumps(["recorded", repr(arguments)]))
        """
    )
    errors = [tuple(json.loads(line)) for line in out.splitlines()]
    assert [kind for kind, _ in errors] == ["TypeError"] * 22 + ["ValueError"] * 10, errors
    names = "dict dict dict __main__.Odd type bytes complex set datetime.datetime type function"
    for name, (_, message) in zip(names.split(), errors, strict=False):
        assert message.startswith(name + " cannot be recorded")
    assert errors[0][1].endswith("log({...})"), "what was probably meant"
    assert not runner.metrics.exists()


def test_number_types_and_ranges(runner):
    runner.run(
        """
        from decimal import Decimal
        from fractions import Fraction
        from mlworkbench import log, log_params
        log("n", 10 ** 400)
        log({"n": -10 ** 5000})
        log("n", 2 ** 1024 - 1)
        log("n", 10 ** 300)
        log("n", [Fraction(1, 4), 10 ** 400])
        log("n", Decimal("0.5"), step=Decimal(3))
        log("n", Fraction(-10 ** 400))
        log_params({"seed": 10 ** 400, "lr": Decimal("0.1")})
        """
    )
    inf = float("inf")
    numbers = [inf, -inf, inf, 10**300, [0.25, inf], 0.5, -inf]
    assert [value for _, value, _ in runner.points()] == numbers and runner.points()[5][2] == 3
    assert [data["value"] for data in runner.records("param")] == [str(10**400), 0.1]


def test_values_are_copied(runner):
    runner.run(
        """
        from mlworkbench import log
        row, rows = [1, 2], [[1], [2]]
        log("row", row)
        log("rows", rows)
        row.append(3)
        rows[0][0] = 9
        """
    )
    assert runner.points() == [("row", [1, 2], None), ("rows", [[1], [2]], None)]


def test_order_is_kept_and_calls_return_none(runner):
    out = runner.run(
        """
        from mlworkbench import log
        print({log("n", i, step=-i) for i in range(30000)})
        """
    )
    assert out == "{None}\n"
    assert runner.points() == [("n", i, -i) for i in range(30000)]


# -- threads and processes -----------------------------------------------------------------------------------


def test_threads_keep_all_points_in_order(runner):
    runner.run(
        """
        import threading
        from mlworkbench import flush, log

        def work(name):
            for i in range(1000):
                log(name, i)
                if i % 300 == 0:
                    flush()

        threads = [threading.Thread(target=work, args=("t%d" % nth,)) for nth in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        """
    )
    assert len(runner.files()) == 1
    points = runner.points()
    assert len(points) == 8000
    for nth in range(8):
        assert [value for name, value, _ in points if name == f"t{nth}"] == list(range(1000))


@EVERY_PYTHON
def test_the_thread_writes_without_flush(runner):
    runner.run(
        """
        import glob, os, time
        from mlworkbench import log, run
        log("a", 1)
        def lines():
            return sum(open(path).read().count("\\n") for path in glob.glob(run.folder + "/metrics/*"))
        while lines() < 1: time.sleep(0.01)
        log("a", 2)
        while lines() < 2: time.sleep(0.01)
        if hasattr(os, "fork"):         # the thread stops for it, and comes back
            log("a", 3)
            if os.fork() == 0: os._exit(0)
            os.wait()
            while lines() < 3: time.sleep(0.01)
            log("a", 4)
            while lines() < 4: time.sleep(0.01)
        os._exit(0)
        """
    )
    assert [value for _, value, _ in runner.points()] == ([1, 2] if os.name == "nt" else [1, 2, 3, 4])


@EVERY_PYTHON
@ON_POSIX
def test_a_fork_starts_with_an_empty_buffer_and_its_own_file(runner):
    runner.run(
        """
        import os, sys
        from mlworkbench import flush, log

        def child(end):
            pid = os.fork()
            if pid == 0:
                log("child", end)
                if end == "flushed": flush(); os._exit(0)
                if end == "silent": os._exit(0)
                sys.exit(0)
            assert os.waitpid(pid, 0)[1] == 0

        child("flushed")            # nothing was logged before this fork
        log("parent", 1)            # waits while the next children are made
        child("flushed")
        child("normal")
        log("parent", 2)
        flush()
        log("parent", 3)
        if os.fork() == 0:          # a grandchild, and a child that logs nothing
            child("normal")
            os._exit(0)
        os.wait()
        log("parent", 4)
        """
    )
    files = sorted([(line["n"], line["v"]) for line in file] for file in runner.files())
    parent = [("parent", 1), ("parent", 2), ("parent", 3), ("parent", 4)]
    assert files == [*[[("child", "flushed")]] * 2, *[[("child", "normal")]] * 2, parent]
    assert len({path.name.partition("-")[0] for path in runner.metrics.iterdir()}) == 5


@EVERY_PYTHON
@ON_POSIX
def test_forks_while_a_thread_logs(runner):
    runner.run(
        """
        import os, threading
        from mlworkbench import log

        def work():
            for i in range(20000): log("thread", i)

        thread = threading.Thread(target=work)
        thread.start()
        for i in range(20):
            pid = os.fork()
            if pid == 0:
                log("child", i)
                try:
                    raise SystemExit(0)
                finally:
                    import mlworkbench
                    mlworkbench.flush()
                    os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        thread.join()
        """,
        stderr=None,  # Python 3.12 and newer warn about a fork with threads
    )
    points = runner.points()
    assert [value for name, value, _ in points if name == "thread"] == list(range(20000))
    assert sorted(value for name, value, _ in points if name == "child") == list(range(20))


@EVERY_PYTHON
@ON_POSIX
def test_the_thread_causes_no_fork_warnings(runner):
    runner.run(
        """
        import os
        from mlworkbench import log
        for i in range(20):
            log("a", i)
            pid = os.fork()
            if pid == 0: os._exit(0)
            os.waitpid(pid, 0)
        """,
        options=["-W", "always"],
    )
    assert [value for _, value, _ in runner.points()] == list(range(20))


def test_a_million_points_with_ten_thousand_names(current_runner):
    current_runner.run(
        """
        from mlworkbench import log
        for i in range(1000000): log("metric %d" % (i % 10000), i, step=i // 10000)
        """
    )
    (file,) = current_runner.metrics.iterdir()
    line = rb'{"n": "metric (\d+)", "v": (\d+), "t": [\d.]+, "s": (\d+), "i": (\d+)}\n'  # a pattern is faster than JSON
    matches = re.findall(line, file.read_bytes())
    assert len(matches) == file.read_bytes().count(b"\n") == 1000000
    assert all(
        matches[i] == (b"%d" % (i % 10000), b"%d" % i, b"%d" % (i // 10000), b"%d" % (i + 1)) for i in range(1000000)
    )


@ON_POSIX
def test_a_killed_process_leaves_a_prefix_of_its_points(current_runner):
    for _ in range(10):
        with current_runner.start(
            """
            from mlworkbench import log
            log("a", 0)
            print("begun", flush=True)
            i = 1
            while True:
                log("a", i)
                i += 1
            """
        ) as process:
            process.stdout.readline()
            while not current_runner.metrics.exists() or not any(
                path.stat().st_size for path in current_runner.metrics.iterdir()
            ):
                assert process.poll() is None
                time.sleep(0.001)
            process.kill()
        (file,) = current_runner.metrics.iterdir()
        data = file.read_bytes()
        assert [line["v"] for line in parse_lines(data[: data.rindex(b"\n") + 1])] == list(range(data.count(b"\n")))
        file.unlink()


METHODS = ["spawn"] if os.name == "nt" else ["fork", "spawn", "forkserver"]


@pytest.mark.parametrize("method", METHODS)
def test_multiprocessing_children_lose_no_points(runner, method):
    runner.run(
        """
        import multiprocessing, sys, threading
        from concurrent.futures import ProcessPoolExecutor
        from mlworkbench import log

        def normal(i): log("process", i)
        def fails(i): log("process", i); raise RuntimeError("on purpose")
        def exits(i): log("process", i); sys.exit(0)
        def late(i):
            def work():
                for nth in range(100): log("thread", nth)
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            log("process", i)
        def pooled(i): log("pool", i); return i

        if __name__ == "__main__":
            multiprocessing.set_start_method("METHOD")
            log("main", 0)
            for i, target in enumerate((normal, fails, exits, late)):
                process = multiprocessing.Process(target=target, args=(i,))
                process.start()
                process.join()
            with multiprocessing.Pool(2) as pool:       # ended by SIGTERM
                assert pool.map(pooled, range(20)) == list(range(20))
            pool = multiprocessing.Pool(2)
            pool.map(pooled, range(20, 30))
            pool.close()
            pool.join()
            with ProcessPoolExecutor(2) as executor:
                list(executor.map(pooled, range(30, 40)))
            log("main", 1)
        """.replace("METHOD", method),
        stderr=None,
    )
    assert runner.stderr.count("RuntimeError: on purpose") == 1
    assert "mlworkbench" not in runner.stderr
    points = runner.points()
    assert sorted(value for name, value, _ in points if name == "process") == [0, 1, 2, 3]
    assert [value for name, value, _ in points if name == "thread"] == list(range(100))
    assert [value for name, value, _ in points if name == "main"] == [0, 1]
    assert sorted(value for name, value, _ in points if name == "pool") == list(range(40))


# -- exit ----------------------------------------------------------------------------------------------------


@EVERY_PYTHON
@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("pass", 0),
        ("raise RuntimeError('on purpose')", 1),
        ("sys.exit(3)", 3),
        ("sys.exit('words')", 1),
        ("raise KeyboardInterrupt", None),
        ("threading.Thread(target=after_main).start()", 0),
    ],
    ids=["end of script", "exception", "exit", "exit with message", "interrupt", "thread outlives main"],
)
def test_every_regular_exit_writes_the_last_points(runner, end, code):
    if code is None:
        code = 1 if runner.version < (3, 8) else -signal.SIGINT
    runner.run(
        """
        import atexit, sys, threading

        def earlier(): log("atexit", 1)
        atexit.register(earlier)            # registered before ours, therefore called after it
        from mlworkbench import log

        def after_main():
            threading.main_thread().join()
            log("after main", 1)

        log("last", 1)
        END
        """.replace("END", end),
        code=code,
        stderr=None,
    )
    late = [("after main", 1, None)] if "after_main" in end else []
    assert runner.points() == [("last", 1, None), *late, ("atexit", 1, None)]


@EVERY_PYTHON
def test_the_first_point_at_exit(runner):
    runner.run(
        """
        import atexit, sys
        from mlworkbench import log

        @atexit.register
        def report():
            for i in range(3): log("a", i)
        """
    )
    assert [value for _, value, _ in runner.points()] == [0, 1, 2]


@ON_POSIX
def test_flushed_points_survive_a_kill(runner):
    process = runner.start(
        """
        from mlworkbench import flush, log
        for i in range(5000): log("a", i)
        flush()
        print("flushed", flush=True)
        i = 5000
        while True:
            log("a", i)
            i += 1
        """
    )
    with process:
        assert process.stdout.readline() == "flushed\n"
        (file,) = runner.metrics.iterdir()
        flushed = file.stat().st_size
        while file.stat().st_size == flushed:  # wait until the thread writes later points
            assert process.poll() is None
        process.kill()
        assert process.wait() == -signal.SIGKILL
    data = file.read_bytes()
    lines = parse_lines(data[: data.rindex(b"\n") + 1])
    assert len(lines) > 5000
    assert [line["v"] for line in lines] == list(range(len(lines)))


# -- disk errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("obstacle", ["a file in the way", "no run folder", "no right to write"])
def test_an_unwritable_folder_causes_one_warning(runner, obstacle):
    if obstacle == "a file in the way":
        runner.metrics.write_text("not a folder")
    elif obstacle == "no run folder":
        runner.env["MLW_RUN_FOLDER"] = str(runner.folder / "gone")
    else:
        runner.metrics.mkdir(mode=0o500)
    out = runner.run(
        """
        import os
        from mlworkbench import flush, log
        if "OBSTACLE" == "no right to write" and os.geteuid() == 0:
            os.setuid(65534)    # root may write everywhere
        for i in range(100):
            log("a", i)
            flush()
        if hasattr(os, "fork"):
            pid = os.fork()
            if pid == 0: log("a", 100); raise SystemExit(0)
            os.waitpid(pid, 0)
        print("done")
        """.replace("OBSTACLE", obstacle),
        stderr=None,
    )
    assert out == "done\n"
    assert runner.stderr.startswith("mlworkbench: metrics cannot be written now and are kept in memory: ")
    assert len(runner.stderr.splitlines()) == 1


def test_points_are_kept_until_the_disk_works_again(runner):
    runner.run(
        """
        import os
        from mlworkbench import flush, log, run
        metrics = os.path.join(run.folder, "metrics")
        open(metrics, "w").close()
        for i in range(100): log("a", i)
        flush()
        os.remove(metrics)
        for i in range(100, 200): log("a", i)
        """,
        stderr=None,
    )
    assert [value for _, value, _ in runner.points()] == list(range(200))


def test_the_oldest_points_are_dropped_and_counted(runner):
    runner.run(
        """
        import os
        import mlworkbench._writer as writer
        from mlworkbench import flush, log, run
        writer.MAX_WAITING = 100
        metrics = os.path.join(run.folder, "metrics")
        open(metrics, "w").close()
        for i in range(150): log("a", i)
        flush()
        for i in range(150, 175): log("a", i)
        flush()
        os.remove(metrics)
        log("a", 175)
        """,
        stderr=None,
    )
    (file,) = runner.files()
    assert file[0]["v"] == 0  # was already encoded for the write that failed
    assert file[1] == {"lost": 74}
    assert [line["v"] for line in file[2:]] == list(range(75, 176))


HANGS = """
    import os, threading
    import mlworkbench._writer as writer
    writer.LOCK_TIMEOUT = 0.01
    write, hangs = os.write, threading.Event()

    def hang(fd, data):
        if threading.current_thread().name == "mlworkbench":
            hangs.set()
            threading.Event().wait()        # as on a dead network disk
        return write(fd, data)

    os.write = hang
"""


def test_a_hanging_disk_blocks_neither_calls_nor_exit(runner):
    out = runner.run(
        HANGS
        + """
    from mlworkbench import flush, log
    for i in range(2): log("a", i)      # the second call in a row starts the thread
    hangs.wait()
    for i in range(100000): log("a", i)
    flush()
    print("done")
    """
    )
    assert out == "done\n"


def test_a_hanging_disk_does_not_exhaust_memory(runner):
    out = runner.run(
        HANGS
        + """
    writer.MAX_BUFFERED = 1000
    import mlworkbench._log as module
    from mlworkbench import log
    for i in range(2): log("a", i)
    hangs.wait()
    for i in range(100000): log("a", i)
    print(len(module._writer.points))
    """
    )
    assert out == "1000\n"


@pytest.mark.parametrize("problem", ["slow", "failing"])
def test_after_a_slow_or_failed_write_only_the_thread_writes(runner, problem):
    runner.run(
        """
        import os, threading, time
        import mlworkbench._log as module
        from mlworkbench._log import log_point
        from mlworkbench import run
        metrics = os.path.join(run.folder, "metrics")
        if "PROBLEM" == "slow":
            module._SLOW_WRITE = -1000
        else:
            open(metrics, "w").close()
        start = time.time()
        for i in range(5): log_point("a", i, start + i)     # as from a script that logs rarely
        assert [thread.name for thread in threading.enumerate()][1:] == ["mlworkbench"]
        if "PROBLEM" == "failing":
            os.remove(metrics)
        def lines():
            names = os.listdir(metrics) if os.path.isdir(metrics) else []
            return sum(open(os.path.join(metrics, name)).read().count("\\n") for name in names)
        while lines() < 5: time.sleep(0.01)
        os._exit(0)
        """.replace("PROBLEM", problem),
        stderr=None,
    )
    assert [value for _, value, _ in runner.points()] == list(range(5))


@ON_POSIX
def test_a_partial_write_is_continued(runner):
    runner.run(
        """
        import os, resource
        from mlworkbench import flush, log, run
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))     # so far the kernel writes, then it refuses
        for i in range(100): log("a", i)
        flush()
        flush()
        (name,) = os.listdir(os.path.join(run.folder, "metrics"))
        assert os.path.getsize(os.path.join(run.folder, "metrics", name)) == 1000
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        for i in range(100, 200): log("a", i)
        """,
        stderr=None,
    )
    assert "File too large" in runner.stderr
    assert [value for _, value, _ in runner.points()] == list(range(200))


def test_an_interrupted_flush_causes_no_duplicates(runner):
    runner.run(
        """
        import os
        import mlworkbench._writer as writer
        writer.INTERVAL = 1000          # the thread keeps out of it
        from mlworkbench import flush, log
        write = os.write

        def interrupted(how_much):
            def replacement(fd, data):
                os.write = write
                write(fd, data[:how_much])
                raise KeyboardInterrupt
            return replacement

        for nth, how_much in enumerate([0, 5, 100, None]):
            for i in range(10): log("a", nth * 10 + i)
            os.write = interrupted(how_much)
            try:
                flush()
            except KeyboardInterrupt:
                continue
            raise AssertionError("not interrupted")
        """
    )
    assert [value for _, value, _ in runner.points()] == list(range(40))


@pytest.mark.parametrize("at_once", [True, False], ids=["in the call", "in a flush"])
def test_logging_during_a_flush(runner, at_once):
    runner.run(
        """
        import os
        import mlworkbench._writer as writer
        writer.INTERVAL = 1000
        from mlworkbench import flush, log
        write = os.write

        def with_a_signal(fd, data):
            os.write = write
            log("handler", 1)       # as a signal handler or a destructor may
            flush()
            return write(fd, data)

        if AT_ONCE:
            os.write = with_a_signal
        for i in range(2): log("a", i)
        if not AT_ONCE:
            os.write = with_a_signal
        flush()
        os._exit(0)
        """.replace("AT_ONCE", repr(at_once))
    )
    order = ["a", "handler", "a"] if at_once else ["a", "a", "handler"]
    assert [name for name, _, _ in runner.points()] == order


@ON_POSIX
def test_a_script_that_closes_all_descriptors(runner):
    runner.run(
        """
        import os
        from mlworkbench import flush, log
        log("a", 1)
        flush()
        os.closerange(3, 100)
        own = [os.open("own-%d" % nth, os.O_RDWR | os.O_CREAT) for nth in range(10)]
        log("a", 2)
        flush()
        if os.fork() == 0: os._exit(0)
        os.wait()
        assert [os.fstat(fd).st_size for fd in own] == [0] * 10
        """
    )
    assert [value for _, value, _ in runner.points()] == [1, 2]


def test_a_script_that_is_faster_than_the_writer_loses_no_points(runner):
    out = runner.run(
        """
        import mlworkbench._log as module
        import mlworkbench._writer as writer
        from mlworkbench import log
        writer.MAX_WAITING, writer.INTERVAL, writer.CHUNK = 500, 0.001, 100
        i = 0

        def log_while(held_back):
            global i
            while (module._append is module._append_and_write) is held_back:
                log("a", i)
                i += 1
                assert i < 3000000

        log_while(False)
        log_while(True)
        log_while(False)
        log_while(True)
        print(i)
        """
    )
    assert [value for _, value, _ in runner.points()] == list(range(int(out)))


# -- outside a run, and beside installed packages ------------------------------------------------------------


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "outside"])
def test_tracking_can_be_disabled(runner, inside):
    runner.env["MLW_TRACKING"] = "off"
    if not inside:
        del runner.env["MLW_RUN_FOLDER"], runner.env["MLW_RUN_ID"]
    out = runner.run(
        """
        from azureml.logging import get_azureml_logger
        from mlworkbench import flush, log, run
        for i in range(3): log("a", i)
        log({"a": 1}, step=1)
        flush()
        get_azureml_logger().log("a", 1).wait()
        get_azureml_logger().upload("a.txt", "text")
        print(run.id, run.folder, run.outputs)
        """
    )
    assert out == "None None None\n"
    assert not runner.home.exists()
    assert not runner.metrics.exists()
    assert sorted(path.name for path in runner.work.rglob("*")) == ["outputs", "script.py"]


@pytest.mark.parametrize("stderr", ["None", "open(os.devnull)"])
def test_a_script_without_stderr(current_runner, stderr):
    del current_runner.env["MLW_RUN_FOLDER"]
    current_runner.run(
        f"""
        import os, sys
        from mlworkbench import log
        sys.stderr = {stderr}
        log("a", 1)
        sys.stderr = None
        """
    )


def test_run_has_id_and_paths(runner):
    out = runner.run("from mlworkbench import run; print(run.id, run.folder, run.outputs, sep='\\n')")
    assert out.splitlines() == ["run-1", str(runner.folder), str(runner.outputs)]


def test_importing_the_library_has_no_side_effects(runner):
    runner.run(
        """
        import threading
        import mlworkbench, azureml.logging
        mlworkbench.flush()
        assert threading.active_count() == 1
        """
    )
    assert not runner.metrics.exists()


@EVERY_PYTHON
def test_installed_packages_of_the_same_names_can_be_imported(runner, tmp_path):
    site = tmp_path / "site"
    for name, text in {
        "mlworkbench/__init__.py": "raise AssertionError('the in-run library comes first')",
        "mlworkbench/history/__init__.py": "HERE = 'history'",
        "azureml/__init__.py": "__path__ = __import__('pkgutil').extend_path(__path__, __name__)",
        "azureml/core/__init__.py": "HERE = 'core'",
        "azureml/sdk/__init__.py": "",
        "azureml/sdk/other.py": "HERE = 'other'",
    }.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    runner.env["PYTHONPATH"] += os.pathsep + str(site)
    out = runner.run(
        """
        import logging
        from azureml.logging import get_azureml_logger
        from mlworkbench import log
        import azureml.core, azureml.sdk.other, mlworkbench.history
        print(azureml.core.HERE, azureml.sdk.other.HERE, mlworkbench.history.HERE)
        logging.getLogger("x").warning("the standard one")
        """,
        stderr="the standard one\n",
    )
    assert out == "core other history\n"


# -- API of Azure ML Workbench -------------------------------------------------------------------------------


def test_azureml_logger(runner):
    runner.run(
        """
        import os
        from azureml.logging import get_azureml_logger
        from azureml.sdk.data_collector import current_run
        logger = get_azureml_logger()
        handle = logger.log("amlrealworld.iris.train", "true")
        for epoch in range(3): logger.log("Accuracy", epoch / 2)
        current_run().log("from the oldest API", [1, 2])
        assert logger.log("a", 1).wait() is None
        os._exit(0)         # everything before wait() is written
        """
    )
    assert runner.points() == [
        ("amlrealworld.iris.train", "true", None),
        *[("Accuracy", epoch / 2, None) for epoch in range(3)],
        ("from the oldest API", [1, 2], None),
        ("a", 1, None),
    ]


def test_upload_stores_text_in_outputs(runner):
    runner.run(
        """
        import os
        from azureml.logging import get_azureml_logger
        logger = get_azureml_logger()
        os.chdir("/")
        logger.upload("plain.txt", "caf\\u00e9\\r\\n").wait()
        logger.upload("a/b/c.txt", "first")
        logger.upload("a/b/c.txt", "second")
        logger.upload("outputs/named.txt", "x")
        logger.upload("..odd name..", b"bytes")
        """
    )
    files = [path for path in runner.outputs.rglob("*") if path.is_file()]
    assert {path.relative_to(runner.outputs).as_posix(): path.read_bytes() for path in files} == {
        "plain.txt": "café\r\n".encode(),
        "a/b/c.txt": b"second",
        "named.txt": b"x",
        "..odd name..": b"bytes",
    }


@ON_POSIX
def test_upload_rejects_paths_outside_outputs(runner):
    (runner.outputs / "link").symlink_to(runner.folder)
    (runner.outputs / "folder").mkdir()
    out = runner.run(
        """
        from azureml.logging import get_azureml_logger
        logger = get_azureml_logger()
        for path in ("../x", "/tmp/x", "a/../../x", "a/..", "..", ".", "", "a//b", "a/", "outputs/../../x",
                     "outputs/", "link/x", "link/new/x", "a\\0b"):
            try:
                logger.upload(path, "text")
            except ValueError:
                pass
            else:
                print("taken:", repr(path))
        for path, text in ((1, "x"), ("x", 1), ("x", None)):
            try:
                logger.upload(path, text)
            except TypeError as error:
                print(type(error).__name__)
        try:
            logger.upload("folder", "text")
        except OSError as error:
            print(type(error).__name__)
        """
    )
    assert out.split() == ["TypeError", "TypeError", "TypeError", "IsADirectoryError"]
    left = ["folder", "link", "outputs", "script.py", "work"]
    assert sorted(path.name for path in runner.folder.rglob("*")) == left


# -- source code ---------------------------------------------------------------------------------------------


SOURCES = sorted(INRUN.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(INRUN).as_posix())
def test_no_syntax_newer_than_python_3_5(path):
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source, feature_version=(3, 5))
    newer = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.AsyncFunctionDef)
    assert [node for node in ast.walk(tree) if isinstance(node, newer)] == []
    assert not re.search(r"\*\w+,\s*\)", source), "a comma after *args came with 3.6"


def test_only_the_standard_library_is_imported():
    names = set()
    for path in (path for path in SOURCES if "_mlflow" not in path.parts):  # those run only inside MLflow
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names.add(node.module.partition(".")[0])
    for folder in ("_spark", "_launch"):  # their modules import each other by plain names
        names -= {path.stem for path in INRUN.glob(f"*/{folder}/*.py")}
    names -= {"IPython", "traitlets"}  # a notebook that runs as a script uses them if they are installed
    assert names - set(sys.stdlib_module_names) == {"azureml", "mlworkbench"}


def test_the_folder_contains_no_other_packages():
    names = {path.name for path in INRUN.iterdir() if path.suffix != ".dist-info"}
    assert names - {"__pycache__"} == {"azureml", "mlworkbench"}


def test_print_the_tested_pythons(capsys):
    with capsys.disabled():
        print("\nin-run library tested on Python", *version_names(PYTHONS))
    assert PYTHONS
