"""The kill test's harness, in the Jepsen manner: orders, a nemesis, an observer that is not the product, checkers.

An order is one ``mlw submit --key K``. The nemesis kills -9 while it is carried out: the client, the supervisor, the
launcher, at a random moment or at a fail point by name. The observer is the user's script itself: it appends
``start K pid`` and ``end K`` to a file that the product does not know. The checkers judge afterwards, from that file
and the final records only.
"""

from __future__ import annotations

import copy
import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import apsw

from ..conftest import MLW, Done, Process, User
from ..fork_server import forked

SEED = int(os.environ.get("MLW_KILL_SEED", "20261115"))
PATIENCE = float(os.environ.get("MLW_KILL_PATIENCE", "60"))  # seconds after which a command counts as hanging
AT_ONCE = 3

CLIENT_STAGES = ("snapshot", "recorded", "foldered", "launching", "launched-here")
SUPERVISOR_STAGES = (
    "claiming",
    "claimed",
    "accepted",
    "placed",
    "prepared",
    "launched",
    "started",
    "finishing",
    "finished",
)
LAUNCHER_STAGES = ("before-gate", "after-gate", "after-start", "before-exit")
FAR_STAGES = SUPERVISOR_STAGES + LAUNCHER_STAGES

SCRIPT = """
import os, sys, time

key, lines, pause, observer = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), os.path.expanduser(sys.argv[4])

def observe(text):
    file = os.open(observer, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, (text + "\\n").encode())
    os.close(file)

observe(f"start {key} {os.getpid()}")
print("secret of", len(os.environ.get("WORD", "")))  # the word itself is masked on the screen
for n in range(lines):
    print(key, n, "x" * (n * 37 % 200))
    time.sleep(pause)
observe(f"end {key}")
sys.exit(int(sys.argv[5]))
"""


def expected_log(order: Order) -> bytes:
    """What the script prints, made up here a second time."""
    lines = [f"{order.key} {n} {'x' * (n * 37 % 200)}\n" for n in range(order.lines)]
    return "".join([f"secret of {len(order.secret or '')}\n", *lines]).encode()


# -- generator -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """What befalls one call of submit: ``who`` is killed at ``stage``, or ``delay`` seconds after it was born.

    Beside client, supervisor and launcher: ``both`` (client, then supervisor), ``ours`` (any process of ours on the
    target), ``storm`` (all of those, five times in a row, whoever takes over). On targets reached by SSH also
    ``agent`` (the process that serves this client there), ``session`` (sshd's processes of the connection there) and
    ``connection`` (the shared ssh process here).
    """

    who: str = "nobody"
    stage: str | None = None
    delay: float = 0.0

    @property
    def spares_target(self) -> bool:
        """Whether only the client or its connection dies: then the run must succeed in the end."""
        return self.who in ("nobody", "client", "agent", "session", "connection")

    def __str__(self) -> str:
        return f"{self.who} at {self.stage or 'a random moment'}" if self.who != "nobody" else "nobody"


NOTHING = Fault()


@dataclass(frozen=True)
class Order:
    """One key, how its script behaves, and what befalls each of the calls that submit it."""

    key: str
    faults: tuple[Fault, ...] = (NOTHING,)
    lines: int = 5
    pause: float = 0.01
    detach: bool = False
    secret: str | None = None
    code: int = 0  # the script's own

    @property
    def ending(self) -> str:
        """The truth about a script that came to its end."""
        return f"failed (exit {self.code})" if self.code else "succeeded"

    @property
    def spares_target(self) -> bool:
        return all(fault.spares_target for fault in self.faults)

    def __str__(self) -> str:
        return f"{self.key} ({', '.join(str(fault) for fault in self.faults)})"


def staged(stage: str) -> Fault:
    who = "client" if stage in CLIENT_STAGES else "launcher" if stage in LAUNCHER_STAGES else "supervisor"
    return Fault(who, stage)


@dataclass(frozen=True)
class Mix:
    """Which faults ``orders`` deals out, in turn; the untouched ones come last."""

    kinds: tuple[str, ...]
    victims: tuple[str, ...]  # of the kind "victim": killed at a random moment
    reach: float = 0.25  # seconds after the victim was first seen in which it is killed

    @property
    def harmful(self) -> int:
        return len(self.kinds) - self.kinds.count("nobody")


# Half of them with the client killed, three in ten with something on the target killed, the rest untouched.
HERE = Mix(
    ("client",) * 3 + ("client stage",) * 2 + ("target stage",) * 2 + ("victim", "nobody", "nobody"),
    ("supervisor", "launcher", "ours", "both", "storm"),
)


def orders(count: int, seed: int, typical: float, mix: Mix = HERE) -> list[Order]:
    choose = random.Random(seed)
    near, far = _turns(choose, CLIENT_STAGES), _turns(choose, FAR_STAGES)
    victims = _turns(choose, mix.victims)

    def fault(kind: str) -> Fault:
        if kind == "client":
            return Fault("client", None, choose.uniform(0, 1.1 * typical))
        if kind == "client stage":
            return staged(next(near))
        if kind == "target stage":
            return staged(next(far))
        return Fault(next(victims), None, choose.uniform(0, mix.reach)) if kind == "victim" else NOTHING

    made = []
    for number in range(count):
        kind = mix.kinds[number % len(mix.kinds)]
        faults = [fault(kind)]
        if choose.random() < 0.2:
            faults.append(fault(mix.kinds[choose.randrange(mix.harmful)]))  # and the second try does not go well either
        pause = 0.05 if kind == "victim" else choose.choice([0.0, 0.01, 0.04])  # those must live to be killed
        code = choose.choice([0, 0, 7])  # else nobody would notice a success that was only guessed
        made.append(Order(f"k{number:04}", tuple(faults), 5, pause, detach=choose.random() < 0.2, code=code))
    choose.shuffle(made)
    return made


def _turns(choose: random.Random, stages: Sequence[str]) -> Iterable[str]:
    """Every stage in turn, each round in another order, so that none is left out."""
    while True:
        yield from choose.sample(stages, len(stages))


# -- the place where it happens ------------------------------------------------------------------------


@dataclass
class Attempt:
    """What the client did and said, and whom the nemesis hit."""

    order: Order
    fault: Fault
    code: int | None  # None: it hung
    out: bytes
    err: str
    seconds: float
    hit: bool = False

    @property
    def run(self) -> str | None:
        found = re.search(r"^RunId: +(\S+)", self.err, re.MULTILINE)
        return found.group(1) if found else None


@dataclass
class World:
    """One store, one project with the observed script, and all that was ordered in it."""

    user: User
    project: Path
    observer: Path
    attempts: list[Attempt] = field(default_factory=list)
    mortal: bool = False  # whether the scripts may have been killed as well
    patience: float = 1.0  # seconds for a victim to appear
    pause: float = 0.003  # seconds between two looks for a victim
    options: tuple[str, ...] = ()  # of submit
    _keys: dict[Path, str] = field(default_factory=dict)

    @property
    def observer_argument(self) -> str:
        """The observer's file as the script names it."""
        return str(self.observer)

    @staticmethod
    def of(user: User) -> World:
        return World(user, user.project("kill", work=SCRIPT), user.home / "observed")

    def apart(self, name: str) -> World:
        """The same project with an empty store: everything that a first submit makes is made again."""
        user = copy.copy(self.user)
        user.store = self.user.store.with_name(f"store-{name}")
        user.env = {**self.user.env, "MLW_HOME": str(user.store)}
        return World(user, self.project, self.user.home / f"observed-{name}")

    @property
    def orders(self) -> list[Order]:
        return list({attempt.order.key: attempt.order for attempt in self.attempts}.values())

    def words(self, order: Order, detach: bool | None = None) -> list[str]:
        options = ["--detach"] if (order.detach if detach is None else detach) else []
        options += ["--secret", "WORD"] if order.secret else []
        script = ["work.py", order.key, str(order.lines), str(order.pause), self.observer_argument, str(order.code)]
        return ["submit", *self.options, "--key", order.key, *options, *script]

    def env(self, order: Order) -> dict[str, str]:
        return {"WORD": order.secret} if order.secret else {}

    def submit(self, order: Order) -> Done:
        """The command as a user types it, with nobody to disturb it."""
        return self.user.mlw(*self.words(order, detach=False), cwd=self.project, env=self.env(order), timeout=PATIENCE)

    def observed(self) -> list[list[str]]:
        try:
            return [line.split() for line in self.observer.read_text().splitlines()]
        except FileNotFoundError:
            return []

    def count(self, word: str, key: str) -> int:
        return sum(line[:2] == [word, key] for line in self.observed())

    def run_of(self, key: str) -> str | None:
        """The run's id, from the folders: the nemesis asks no product."""
        for spec in self.user.store.glob("runs/*/spec.json"):
            if spec not in self._keys:
                self._keys[spec] = _asked(_json(spec).get("key", ""))
            if self._keys[spec] == key:
                return spec.parent.name
        return None

    # -- the target: here it is this machine ------------------------------------------------------------
    @property
    def stores(self) -> list[Path]:
        """Where the product keeps its files."""
        return [self.user.store]

    def there(self, run: str) -> Path:
        """The run folder on the target, where the supervisor works."""
        return self.user.folder(run)

    def victims(self, order: Order, fault: Fault, client: Process) -> list[int]:
        """The processes that the fault names, if they are there yet."""
        run = self.run_of(order.key)
        if run is None:
            return []
        if fault.who == "launcher":
            return [pid for pid in [_json(self.there(run) / "gate.json").get("pid")] if pid]
        if fault.who in ("ours", "storm"):
            found = processes_of(run)
            return found if fault.who == "storm" else random.Random(order.key).sample(found, min(1, len(found)))
        return [one["data"]["pid"] for one in events(self.there(run)) if one["kind"] == "accepted"]

    def kill(self, pid: int) -> bool:
        return kill_ours(pid, self.user.store)

    def left(self) -> list[str]:
        """Processes of ours that are still there, in words."""
        return [f"{pid} {_bytes(Path(f'/proc/{pid}/cmdline'))!r}" for pid in marked(self.user.store)]

    def check_target(self, found: list[dict[str, Any]]) -> list[str]:
        """What only targets elsewhere can have wrong."""
        return []


def _asked(key: str) -> str:
    """The key as it was typed; the product puts the project's id in front."""
    return key.rpartition(":")[2]


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_bytes()))
    except (OSError, ValueError):
        return {}


def events(folder: Path) -> list[dict[str, Any]]:
    try:
        lines = (folder / "events.jsonl").read_bytes().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue  # the torn line of a supervisor that was killed
    return found


def until(look: Callable[[], Any], timeout: float = PATIENCE, pause: float = 0.003) -> Any:
    """Wait for a condition; what it gave, or None when the time is over."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(pause)
    return None


# -- nemesis -------------------------------------------------------------------------------------------


def carry_out(world: World, order: Order) -> list[Attempt]:
    """Submit as often as there are faults, and let each of them happen."""
    made = [_attempt(world, order, fault) for fault in order.faults]
    world.attempts += made
    return made


def _attempt(world: World, order: Order, fault: Fault) -> Attempt:
    env, far = world.env(order), fault.stage in FAR_STAGES
    if fault.stage:
        env["MLW_FAILPOINT"] = f"{fault.stage}:kill"
    # Each supervisor that a waiting client puts to work would die at the same stage again, for ever.
    words = world.words(order, detach=True if far else None)
    fresh = not _claimed(world, order)
    began = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        client = world.user.start(*words, cwd=world.project, env=env, stdout=out, stderr=err)
        hit = not fault.stage and _strike(world, order, fault, client)
        code = _ended(client)
        if far:  # a run that had passed the stage before this call comes to it no more
            hit = fresh and _claimed(world, order)
        elif fault.who in ("client", "both"):
            hit = hit or code == -signal.SIGKILL
        return Attempt(order, fault, code, _content(out), _content(err).decode(), time.monotonic() - began, hit)


def _claimed(world: World, order: Order) -> bool:
    """Whether a supervisor took the run on, or died while it did (its claim then has another name)."""
    run = world.run_of(order.key)
    there = world.there(run) if run else None
    return there is not None and there.is_dir() and any(path.name.startswith("claim") for path in there.iterdir())


def _content(file: Any) -> bytes:
    file.seek(0)
    return bytes(file.read())


def _ended(client: Process) -> int | None:
    try:
        return client.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        client.kill()
        client.wait()
        return None


def _strike(world: World, order: Order, fault: Fault, client: Process) -> bool:
    """The nemesis at random moments; tells whether it hit."""
    if fault.who == "nobody":
        return False
    hit = False
    if fault.who in ("client", "both"):
        time.sleep(fault.delay)
        client.kill()  # its exit code tells whether that was in time
        if fault.who == "client":
            return False
    if fault.who == "ours":  # whoever is there at that moment, not whoever was first
        _await_victims(world, order, fault, client)
        time.sleep(fault.delay)
    for _ in range(5 if fault.who == "storm" else 1):
        victim = _await_victims(world, order, fault, client)
        time.sleep({"ours": 0.0, "storm": 0.02}.get(fault.who, fault.delay))
        for pid in victim if isinstance(victim, list) else ():
            hit = world.kill(pid) or hit
    return hit


def _await_victims(world: World, order: Order, fault: Fault, client: Process) -> Any:
    """The victims, or True when the client has ended before there were any."""
    there = lambda: world.victims(order, fault, client) or client.poll() is not None  # noqa: E731
    return until(there, world.patience, world.pause)


def kill_ours(pid: int, store: Path, program: bytes = b"__main__.py") -> bool:
    """Kill -9, but never a stranger that has got the same number, nor the script that a process of ours has become."""
    if not _has(pid, os.fsencode(store)):
        return False
    try:
        os.kill(pid, signal.SIGSTOP)  # so that it cannot become another program between look and kill
        ours = program in (Path("/proc") / str(pid) / "cmdline").read_bytes()
        os.kill(pid, signal.SIGKILL if ours else signal.SIGCONT)
    except (ProcessLookupError, FileNotFoundError):
        return False
    return ours


def _has(pid: int, mark: bytes) -> bool:
    place = Path("/proc") / str(pid)
    try:
        return _lives(pid) and mark in (place / "environ").read_bytes() + (place / "cmdline").read_bytes()
    except OSError:
        return False


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def processes_of(run: str) -> list[int]:
    """Supervisor, launcher and their helpers of one run; not its script, which is the user's."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                words = (place / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if run.encode() in words and any(word.endswith(b"__main__.py") for word in words):
                found.append(int(place.name))
    return found


def marked(store: Path) -> list[int]:
    """All living processes that know the store, commands that are forks among them."""
    mark = os.fsencode(store)
    pids = [int(place.name) for place in Path("/proc").iterdir() if place.name.isdigit()]
    forks = [one.pid for one in forked(str(store)) if one.returncode is None and _lives(one.pid)]
    return [pid for pid in pids if pid != os.getpid() and _has(pid, mark)] + forks


def at_once(body: Callable[[Any], Any], items: Iterable[Any], workers: int = AT_ONCE) -> list[Any]:
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(body, items))


# -- recovery ------------------------------------------------------------------------------------------


def recover(world: World) -> list[str]:
    """What a user does after a crash: the same command again, for every key. Complaints about what they see."""
    return [words for found in at_once(lambda order: _recover_one(world, order), world.orders) for words in found]


def _recover_one(world: World, order: Order) -> list[str]:
    try:
        done = world.submit(order)
    except subprocess.TimeoutExpired as error:
        return [f"{order}: the same submit hangs; it said {error.stderr!r}"]
    if "RunId:" not in done.err or "Status:" not in done.err:
        return [f"{order}: the same submit said {done!r}"]
    if order.spares_target and not world.mortal and (done.code, done.stdout) != (order.code, expected_log(order)):
        return [f"{order}: the same submit showed another log or code: {done!r}"]
    return []


def records(world: World) -> list[dict[str, Any]]:
    """The history as a user lists it, but for the one column that tells the time of day."""
    found = [{name: value for name, value in one.items() if name != "age"} for one in world.user.runs()]
    return [{**one, "submit_key": _asked(one["submit_key"])} for one in found]


# -- checkers ------------------------------------------------------------------------------------------


def judge(world: World) -> list[str]:
    """Recover, then everything that is wrong, in words. Nothing may be."""
    wrong = [f"{one.order}: hung: {one.err}" for one in world.attempts if one.code is None]
    wrong += recover(world)
    first = records(world)
    wrong += check_keys(world, first) + check_printed(world, first) + check_runs(world, first)
    wrong += check_folders(world, first) + check_database(world) + world.check_target(first)
    wrong += recover(world)
    if records(world) != first:
        wrong.append("a second recovery changed the history")
    wrong += check_processes(world)
    return wrong


def check_keys(world: World, found: list[dict[str, Any]]) -> list[str]:
    per_key = Counter(one["submit_key"] for one in found)
    return [f"{one} has {per_key[one.key]} runs" for one in world.orders if per_key[one.key] != 1]


def check_printed(world: World, found: list[dict[str, Any]]) -> list[str]:
    """An id that was shown to the user is never lost."""
    by_id = {one["run_id"]: one for one in found}
    wrong = []
    for attempt in world.attempts:
        if attempt.run is None:
            continue
        one = by_id.get(attempt.run)
        if one is None:
            wrong.append(f"{attempt.order}: run {attempt.run} was printed and is lost")
        elif one["status"] not in ("Completed", "Failed", "Canceled") or one["submit_key"] != attempt.order.key:
            wrong.append(f"{attempt.order}: run {attempt.run} was printed and is {one['status']}")
    return wrong


def check_runs(world: World, found: list[dict[str, Any]]) -> list[str]:
    by_key = {one["submit_key"]: one for one in found}
    seen = Counter(tuple(line[:2]) for line in world.observed())
    return [
        f"{order}, run {by_key[order.key]['run_id']}: {words}"
        for order in world.orders
        if order.key in by_key
        for words in _check_run(world, order, by_key[order.key], seen)
    ]


def _check_run(world: World, order: Order, one: dict[str, Any], seen: Counter[tuple[str, ...]]) -> list[str]:
    starts, ends = seen["start", order.key], seen["end", order.key]
    told = f"{one['status']}, {one['ending']}, {one['cause']}, {starts} starts, {ends} ends"
    log = _bytes(world.user.folder(one["run_id"]) / "log")
    whole = expected_log(order)
    rules = {
        "it was started more than once": starts <= 1,
        "the ending is not true": one["ending"] in (order.ending, "could not start", "exit unknown")
        or (world.mortal and one["ending"] == "failed (signal 9)"),
        "completed without a start and an end": one["ending"] != order.ending or (starts, ends) == (1, 1),
        "its log is not what the script printed": log == whole if ends else whole.startswith(log),
        "it went on after its end was told": one["log_bytes"] in (None, len(log)),
        "it could not start, and did": one["ending"] != "could not start" or starts == 0,
        "the script was killed": ends == starts or world.mortal,
        "only the client was killed, and the ending is not the script's": one["ending"] == order.ending
        or not order.spares_target
        or world.mortal,
    }
    return [f"{words}: {told}" for words, holds in rules.items() if not holds]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # the second for a process that ends while it is read
        return b""


def check_folders(world: World, found: list[dict[str, Any]]) -> list[str]:
    """A folder for each run and a run for each folder."""
    there = {path.name for path in (world.user.store / "runs").iterdir()}
    listed = {one["run_id"] for one in found}
    return [f"folders without a run: {there - listed}; without a folder: {listed - there}"] if there != listed else []


def check_database(world: World) -> list[str]:
    connection = apsw.Connection(str(world.user.store / "history.db"), flags=apsw.SQLITE_OPEN_READONLY)
    told = next(iter(connection.execute("PRAGMA integrity_check")))[0]
    connection.close()
    damaged = [path.name for path in world.user.store.glob("history.db.damaged*")]
    return [f"the database: {told}, set aside: {damaged}"] if told != "ok" or damaged else []


def check_processes(world: World) -> list[str]:
    """Supervisors may still be tidying up; what is there after a while stays."""
    if until(lambda: not world.left(), 20):
        return []
    return [f"processes are left: {world.left()}"]


def residue(store: Path) -> list[str]:
    """What killed processes have left: kinds of half-made files, one word per file."""
    kinds = {
        "parts of run files": "runs/*/*.part",
        "lost claims": "runs/*/claim.*",
        "half-placed working folders": "runs/*/placing",
        "parts of blobs": "blobs/part-*",
        "parts of the library": "lib/.part-*",
        "half-made spares": "spares/.*",
    }
    return [name for name, pattern in kinds.items() for _ in store.glob(pattern)]


def save(world: World, seed: int, wrong: Sequence[str]) -> str:
    """Keep what is needed to understand a failure; the words for the message."""
    place = Path(tempfile.mkdtemp(prefix="mlw-kill-"))
    for number, store in enumerate(world.stores):
        shutil.copytree(store, place / f"store-{number}", symlinks=True, ignore=shutil.ignore_patterns("lib"))
    (place / "observed").write_bytes(_bytes(world.observer))
    attempts = [{**asdict(one), "out": one.out.decode(errors="replace")} for one in world.attempts]
    (place / "attempts.json").write_text(json.dumps(attempts, indent=1))
    (place / "wrong.txt").write_text("\n".join(wrong) + "\n")
    return f"seed {seed}; kept in {place}\n" + "\n".join(wrong)


def must_hold(world: World, seed: int = SEED) -> None:
    wrong = judge(world)
    assert not wrong, save(world, seed, wrong)


def must_stay_after_rebuild(world: World, seed: int = SEED) -> None:
    """The folders are the truth: an index made anew from them says the same."""
    before = records(world)
    done = world.user.mlw("history", "rebuild")
    after = records(world)
    wrong = [f"{one} became {two}" for one, two in zip(before, after, strict=False) if one != two]
    assert done.code == 0 and before == after, save(world, seed, [repr(done), *wrong])


# -- strace: kill before the N-th system call of a kind --------------------------------------------------


@dataclass(frozen=True)
class Point:
    """Just before the ``nth`` call of this name in the traced process."""

    call: str
    nth: int

    def inject(self, log: Path) -> list[str]:
        return ["-e", f"trace={self.call}", "-e", f"inject={self.call}:signal=KILL:when={self.nth}", "-o", str(log)]

    def __str__(self) -> str:
        return f"{self.call} {self.nth}"


# What changes a file, starts a process or speaks to another one. All else only looks.
CHANGING = frozenset(
    "fsync fdatasync rename renameat renameat2 link linkat symlinkat unlink unlinkat mkdir mkdirat rmdir pwrite64 write"
    " ftruncate fallocate clone clone3 fork vfork execve flock chmod fchmod utimensat dup2 dup3 setsid exit_group"
    " copy_file_range sendfile".split()
)
HOLDING = frozenset("clock_nanosleep nanosleep restart_syscall pselect6 select poll".split())  # where it was caught


def struck(log: Path) -> bool:
    """Whether strace killed anybody: the call may not have been made so often this time."""
    assert log.exists(), f"strace did not run: there is no {log}"
    return b"killed by SIGKILL" in log.read_bytes()


def points(trace: Path) -> list[Point]:
    """Every call of one process in the order in which they were made."""
    seen: Counter[str] = Counter()
    found = []
    for line in trace.read_text(errors="replace").splitlines():
        name = re.match(r"(\w+)\(", line)
        if name:
            seen[name.group(1)] += 1
            found.append(Point(name.group(1), seen[name.group(1)]))
    return found


def trace_client(world: World, order: Order, options: Sequence[str]) -> Attempt:
    """Submit under strace; -f in the options takes in what the client forks."""
    began = time.monotonic()
    command = ["strace", "-q", *options, str(MLW), *world.words(order)]
    done = subprocess.run(
        command,
        cwd=world.project,
        env={**world.user.env, **world.env(order)},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
    )
    said = done.stderr.decode()
    attempt = Attempt(order, order.faults[0], done.returncode, done.stdout, said, time.monotonic() - began)
    world.attempts.append(attempt)
    return attempt


HOLD = 0.5  # seconds that a process waits to be caught


def trace_far(
    world: World,
    order: Order,
    stage: str,
    options: Sequence[str],
    meanwhile: Callable[[Path, int], None] = lambda folder, pid: None,
) -> Attempt:
    """Submit, catch the supervisor (at ``before-gate`` the launcher) asleep at a stage, and trace it from there."""
    began = time.monotonic()
    env = {**world.env(order), "MLW_FAILPOINT": f"{stage}:sleep={HOLD}"}
    client = world.user.start(*world.words(order), cwd=world.project, env=env)
    pid = until(lambda: _caught(world, order, stage), 20)
    assert pid, f"{order.key}: nobody came to {stage}"
    tracer = subprocess.Popen(["strace", "-q", *options, "-p", str(pid)], stdin=subprocess.DEVNULL)
    meanwhile(world.user.folder(world.run_of(order.key) or ""), pid)
    out, err = client.communicate(timeout=PATIENCE)
    tracer.wait(PATIENCE)
    attempt = Attempt(order, order.faults[0], client.returncode, out, err.decode(), time.monotonic() - began)
    world.attempts.append(attempt)
    return attempt


def _caught(world: World, order: Order, stage: str) -> int | None:
    run = world.run_of(order.key)
    holder = owner(world.user.folder(run)) if run else None
    if holder is None or stage not in LAUNCHER_STAGES:
        return holder
    return next(iter(children(holder)), None)


def owner(folder: Path) -> int | None:
    return _json(folder / "claim" / "owner.json").get("pid")


def children(pid: int) -> list[int]:
    return [int(word) for word in _bytes(Path(f"/proc/{pid}/task/{pid}/children")).split()]


def client_points(world: World, trace: Path, everything: bool) -> list[Point]:
    """All that an undisturbed first submit does and that changes something; also what it forks, if ``everything``."""
    calm = world.apart("calm-all" if everything else "calm")
    trace_client(calm, Order("k", detach=everything), ["-ff" if everything else "-q", "-o", str(trace)])
    traces = sorted(trace.parent.glob(trace.name + ".*")) if everything else [trace]
    return list(dict.fromkeys(point for one in traces for point in points(one) if point.call in CHANGING))


def strike_client(world: World, point: Point, everything: bool) -> bool:
    """Kill before one system call of a first submit in an empty store, recover, judge."""
    apart = world.apart(f"{point.call}-{point.nth}-{'all' if everything else 'client'}")
    apart.mortal = everything
    order = Order("k", (Fault("client", f"strace: {point}"),), detach=everything, secret="mellon")
    log = world.user.home / f"{apart.user.store.name}.strace"
    attempt = trace_client(apart, order, [*(["-f"] if everything else []), *point.inject(log)])
    attempt.hit = struck(log)
    must_hold(apart)
    return attempt.hit


def far_points(world: World, trace: Path, stage: str) -> list[Point]:
    trace_far(world, Order(f"calm-{stage}", detach=True), stage, ["-o", str(trace)])
    return [point for point in points(trace) if point.call not in HOLDING]


def strike_far(world: World, point: Point, who: str, stage: str) -> bool:
    order = Order(f"{who}-{point.call}-{point.nth}", (Fault(who, f"strace: {point}"),), detach=True, code=7)
    log = world.user.home / f"{order.key}.strace"
    attempt = trace_far(world, order, stage, point.inject(log))
    attempt.hit = struck(log)
    return attempt.hit
