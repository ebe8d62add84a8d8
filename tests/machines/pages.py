"""Pages of the documentation as what they are to a reader: files to write, commands to type, words to look for.

`blocks` and `inline` read a page. `Walk` does what a page says, from top to bottom, as one person at one shell: a
`cd` or an `export` holds for the commands below it. What stands below a command in the page must be printed by it.
A command of mlw that needs no shell is a fork (tests/fork_server.py).
What a reader brings along – machines, data, a run that is already there – is the business of the test that walks.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pexpect

from tests.conftest import MLW, Process
from tests.fork_server import is_forkable, start_forked
from tests.machines.laptop import Laptop

ROOT = Path(__file__).parents[2]
RUN = r"[a-z][a-z0-9_]*(?:-[a-z]+){2}-[0-9a-z]{4}"
_FENCE = re.compile(r"^(?P<indent> *)```(?P<kind>\w*)\n(?P<text>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`([\w./-]+\.(?:yml|yaml|compute|runconfig|py|txt))`")
_UNITS = r"(?:B|kB|MB|GB|KiB|MiB|GiB|ms|s|Wh|W|%)"


@dataclass(frozen=True)
class Block:
    """Text between fences; ``file``: the one that the page names for it, in its first line or the sentence before."""

    kind: str
    text: str
    line: int
    file: str | None


@dataclass(frozen=True)
class Command:
    """As it is typed, and what the page shows below it."""

    text: str
    shown: tuple[str, ...] = ()
    line: int = 0


def page(name: str) -> str:
    return (ROOT / name).read_text()


def pages() -> list[str]:
    """All that speak to users."""
    return ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]


def blocks(text: str) -> Iterator[Block]:
    for found in _FENCE.finditer(text):
        indent = len(found["indent"])
        inner = "".join(line[indent:] if line.strip() else "\n" for line in found["text"].splitlines(keepends=True))
        paragraph = text[: found.start()].rstrip().rpartition("\n\n")[2]
        named = re.match(r"# ([\w./-]+)\n", inner) or ([*_FILE.finditer(paragraph)] or [None])[-1]
        yield Block(found["kind"], inner, text.count("\n", 0, found.start()) + 1, named[1] if named else None)


def commands(block: Block) -> list[Command]:
    """A script of the shell is one command; else each line behind a dollar is, with what is shown below it."""
    if block.kind == "bash":
        return [Command(block.text.strip(), (), block.line)]
    found: list[Command] = []
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if line.startswith("$ "):
            found.append(Command(line[2:].strip(), (), number))
        elif line.strip():
            found[-1] = Command(found[-1].text, (*found[-1].shown, line), found[-1].line)
    return found


def typed(text: str) -> list[Command]:
    """All commands of a page's blocks, in order."""
    return [one for block in blocks(text) if block.kind in ("console", "bash") for one in commands(block)]


def inline(name: str) -> list[str]:
    """Commands of mlw within sentences and tables. A reference of commands has only its examples to be typed."""
    text = _FENCE.sub("", page(name))
    if name.endswith("reference/commands.md"):
        found = re.findall(r"^Example: `(.*)`$", text, re.MULTILINE)
    else:
        found = re.findall(r"`((?:eval \"\$\()?mlw [^`]*)`", text)
    return [" ".join(one.replace("\\|", "|").split()) for one in found]


def looks_like(shown: str) -> str:
    """A pattern for a line as the page shows it: ids, numbers and sizes are others each time, … is anything."""
    made = ""
    for piece in re.split(rf"({RUN}|…|\d+(?:[.,]\d+)*(?: {_UNITS}\b)?|\s+)", shown.strip()):
        if piece == "…":
            made += ".*"
        elif re.fullmatch(RUN, piece):
            made += RUN
        elif re.match(r"\d", piece):
            made += rf"[\d.,]+(?: ?{_UNITS})?"
        else:
            made += r"\s+" if piece.isspace() else re.escape(piece)
    return made


def missing(shown: tuple[str, ...], printed: str) -> list[str]:
    """Lines of the page that were not printed. A line that is … alone stands for any number of them."""
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in printed.replace("\r", "\n").splitlines()]
    told = [line for line in shown if line.strip() != "…"]
    return [line for line in told if not any(re.search(looks_like(line), one) for one in lines)]


def plain_words(text: str) -> list[str]:
    """The words of a command of mlw, or none if anything in it is for a shell to expand."""
    if not text.startswith("mlw ") or re.search(r"[|&;<>()$`*?\[\]{}~!\\\n]", re.sub("'[^']*'", "", text)):
        return []
    return shlex.split(text, comments=True)


def merge(path: Path, text: str) -> None:
    """What a page says of a file, into that file: its keys in place of those that are there."""
    keys = set(re.findall(r"^([\w.-]+):", text, re.MULTILINE))
    kept, below = [], False
    for line in path.read_text().splitlines() if path.exists() and keys else []:
        below = line.partition(":")[0] in keys or (below and (line.startswith((" ", "-")) and bool(line.strip())))
        kept += [] if below else [line]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*kept, text]))


@dataclass
class Circumstances:
    """Of one command: what was done before it, what is typed at its questions, and how it ends if not by itself."""

    before: Callable[[], object] | None = None
    answers: tuple[tuple[str, str], ...] = ()
    when: tuple[str, Callable[[], object]] | None = None  # these words are printed → do this
    until: str | None = None  # Ctrl-C at these words, at a terminal
    code: int | tuple[int, ...] = 0
    after: Callable[[str], object] | None = None

    def fits(self, code: int) -> bool:
        return code in (self.code if isinstance(self.code, tuple) else (self.code,))


@dataclass
class Walk:
    """`at` says what is special about a command, `put` where a block without a file's name goes; then `through`."""

    laptop: Laptop
    page: str
    words: dict[str, str] = field(default_factory=dict)  # pattern → what stands there on this machine
    left: set[str] = field(default_factory=set)  # commands that are not run here
    not_shown: tuple[str, ...] = ()  # beginnings of lines that cannot be had here
    patience: float = 120
    ran: list[str] = field(default_factory=list)
    started: bool = False

    def __post_init__(self) -> None:
        self.place = self.laptop.home
        self._circumstances: dict[str, Circumstances] = {}
        self._places: dict[str, str | Callable[[str], object] | None] = {}
        self._state = self.laptop.home.parent / "shell-state"
        self._exported: dict[str, str] = {}

    # -- what the test knows --------------------------------------------------------------------------------------
    def at(self, command: str, **what: object) -> None:
        assert command in {one.text for one in typed(page(self.page))}, f"{self.page} has no such command: {command}"
        self._circumstances[command] = Circumstances(**what)  # type: ignore[arg-type]

    def put(self, first_line: str, where: str | Callable[[str], object] | None) -> None:
        """``where``: a file of the project, something to do with the text, or None: it is only to be read."""
        assert any(one.text.startswith(first_line) for one in blocks(page(self.page))), f"{self.page}: {first_line}"
        self._places[first_line] = where

    # -- the walk -------------------------------------------------------------------------------------------------
    def through(self) -> None:
        self.started = True
        for block in blocks(page(self.page)):
            if block.kind in ("console", "bash"):
                for command in commands(block):
                    if command.text not in self.left:
                        self.type(command)
            elif block.kind in ("yaml", "toml", "python", "text"):
                self._write(block)

    def type(self, command: Command) -> str:
        around = self._circumstances.get(command.text, Circumstances())
        if around.before:
            around.before()
        code, printed = self.shell(self._here(command.text), around)
        where = f"{self.page}:{command.line}: $ {command.text}"
        assert around.fits(code), f"{where}\nended with {code}, not {around.code}:\n{printed}"
        shown = tuple(line for line in command.shown if not line.startswith(self.not_shown or ("\0",)))
        lost = missing(tuple(map(self._here, shown)), printed)
        assert not lost, f"{where}\nprinted no line like\n  " + "\n  ".join(lost) + f"\nbut:\n{printed}"
        self.ran.append(command.text)
        if around.after:
            around.after(printed)
        return printed

    def shell(self, text: str, around: Circumstances | None = None) -> tuple[int, str]:
        """One command in the person's shell: exit code, and all that was printed."""
        around = around or Circumstances()
        words = plain_words(text)
        if words and not around.answers and not around.until and self._is_ours():
            return self._forked(words, around)
        script = f'set -a; cd "{self.place}"\n{text}\ncode=$?; env -0 >"{self._state}"; pwd >"{self._state}.place"\n'
        argv = ["bash", "--noprofile", "--norc", *(["-e"] if "\n" in text else []), "-c", f"{script}exit $code\n"]
        done = self._at_terminal(argv, around) if around.answers or around.until else self._in_pipe(argv, around)
        place = Path(f"{self._state}.place")
        self.place = Path(place.read_text().strip()) if place.exists() else self.place
        if self._state.exists():
            variables = (entry.partition("=") for entry in self._state.read_text().split("\0") if entry)
            self._exported = {name: value for name, _, value in variables if name not in ("_", "TERM")}
        return done

    def forget_variables(self) -> None:
        """As in a new shell."""
        self._state.unlink(missing_ok=True)
        self._exported.clear()

    @property
    def _env(self) -> dict[str, str]:
        return {**self.laptop.env, **self._exported}

    def _is_ours(self) -> bool:
        """Whether `mlw` is the program that is tested, and its variables allow a fork."""
        return shutil.which("mlw", path=self._env["PATH"]) == str(MLW) and is_forkable(self._env)

    def _forked(self, words: list[str], around: Circumstances) -> tuple[int, str]:
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with start_forked(MLW, tuple(words[1:]), self.place, self._env, **streams) as process:
            printed = self._read(process, process.kill, around)
        return process.wait() % 256, printed

    def _here(self, text: str) -> str:
        for pattern, word in self.words.items():
            text = re.sub(pattern, lambda _, word=word: word, text)  # type: ignore[misc]
        return text

    def _write(self, block: Block) -> None:
        for first, where in self._places.items():
            if block.text.startswith(first):
                if callable(where):
                    where(block.text)
                elif where:
                    merge(self.place / where, self._here(block.text))
                return
        if block.file and block.kind != "text":
            merge(self.place / block.file, self._here(block.text))
        else:
            assert block.kind == "text", f"{self.page}:{block.line}: which file is this?\n{block.text}"

    def _in_pipe(self, argv: list[str], around: Circumstances) -> tuple[int, str]:
        with subprocess.Popen(
            argv,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            printed = self._read(process, lambda: os.killpg(process.pid, signal.SIGKILL), around)
        return process.returncode, printed

    def _read(self, process: Process, kill: Callable[[], None], around: Circumstances) -> str:
        """All that it prints until it ends, or is killed when the patience is over."""
        printed, waiting = "", around.when
        assert process.stdout
        impatient = threading.Timer(self.patience, kill)
        impatient.start()
        for line in process.stdout:
            printed += line.decode(errors="replace")
            if waiting and waiting[0] in printed:
                waiting[1]()
                waiting = None
        impatient.cancel()
        return printed

    def _at_terminal(self, argv: list[str], around: Circumstances) -> tuple[int, str]:
        env = {**self._env, "TERM": "xterm"}
        at = pexpect.spawn(argv[0], argv[1:], env=env, encoding="utf-8", timeout=self.patience, dimensions=(50, 200))
        printed = ""
        for prompt, answer in around.answers:
            at.expect_exact(prompt)
            printed += f"{at.before}{at.after}"
            at.sendline(answer)
        if around.until:
            at.expect_exact(around.until)
            printed += f"{at.before}{at.after}"
            at.sendintr()
        at.expect(pexpect.EOF)
        printed += str(at.before)
        at.close()
        code = at.exitstatus if at.exitstatus is not None else 128 + int(at.signalstatus or 0)
        ended = around.until and code in (130, 128 + signal.SIGINT)  # as it was asked to
        return (0 if ended else code), printed


def chown(folder: Path, uid: int) -> None:
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, uid, uid, follow_symlinks=False)
