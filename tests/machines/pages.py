"""Documentation pages as readers use them: files to write, commands to type, and output to expect.

`blocks` and `inline` parse a page. `PageRunner` runs a page from top to bottom, as one user at one shell: a `cd` or an
`export` applies to the commands below it. Each command must print the output that the page shows below it.
An mlw command that needs no shell is a fork (tests/fork_server.py).
The calling test provides the prerequisites: machines, data, an existing run.
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
    """Text between fences; ``file``: its file name from the first line or the preceding sentence."""

    kind: str
    text: str
    line: int
    file: str | None


@dataclass(frozen=True)
class Command:
    """A command as typed, and the output that the page shows below it."""

    text: str
    shown: tuple[str, ...] = ()
    line: int = 0


def page(name: str) -> str:
    return (ROOT / name).read_text()


def pages() -> list[str]:
    """Return all user documentation pages."""
    return ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]


def blocks(text: str) -> Iterator[Block]:
    for match in _FENCE.finditer(text):
        indent = len(match["indent"])
        inner = "".join(line[indent:] if line.strip() else "\n" for line in match["text"].splitlines(keepends=True))
        paragraph = text[: match.start()].rstrip().rpartition("\n\n")[2]
        named = re.match(r"# ([\w./-]+)\n", inner) or ([*_FILE.finditer(paragraph)] or [None])[-1]
        yield Block(match["kind"], inner, text.count("\n", 0, match.start()) + 1, named[1] if named else None)


def commands(block: Block) -> list[Command]:
    """Return the commands of a block.

    A bash block is one command. In other blocks, each line with a ``$`` is a command, and its output follows.
    """
    if block.kind == "bash":
        return [Command(block.text.strip(), (), block.line)]
    result: list[Command] = []
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if line.startswith("$ "):
            result.append(Command(line[2:].strip(), (), number))
        elif line.strip():
            result[-1] = Command(result[-1].text, (*result[-1].shown, line), result[-1].line)
    return result


def typed_commands(text: str) -> list[Command]:
    """Return all commands of a page's blocks, in order."""
    return [command for block in blocks(text) if block.kind in ("console", "bash") for command in commands(block)]


def inline(name: str) -> list[str]:
    """Return mlw commands in sentences and tables; in a command reference, only the examples."""
    text = _FENCE.sub("", page(name))
    if name.endswith("reference/commands.md"):
        examples = re.findall(r"^Example: `(.*)`$", text, re.MULTILINE)
    else:
        examples = re.findall(r"`((?:eval \"\$\()?mlw [^`]*)`", text)
    return [" ".join(example.replace("\\|", "|").split()) for example in examples]


def line_pattern(shown: str) -> str:
    """Return a pattern for a shown line: IDs, numbers, and sizes may differ, and … matches anything."""
    pattern = ""
    for piece in re.split(rf"({RUN}|…|\d+(?:[.,]\d+)*(?: {_UNITS}\b)?|\s+)", shown.strip()):
        if piece == "…":
            pattern += ".*"
        elif re.fullmatch(RUN, piece):
            pattern += RUN
        elif re.match(r"\d", piece):
            pattern += rf"[\d.,]+(?: ?{_UNITS})?"
        else:
            pattern += r"\s+" if piece.isspace() else re.escape(piece)
    return pattern


def missing(shown: tuple[str, ...], printed: str) -> list[str]:
    """Return lines of the page that were not printed. A line with … alone matches any number of lines."""
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in printed.replace("\r", "\n").splitlines()]
    expected = [line for line in shown if line.strip() != "…"]
    return [line for line in expected if not any(re.search(line_pattern(line), actual) for actual in lines)]


def plain_arguments(text: str) -> list[str]:
    """Return the arguments of an mlw command, or an empty list if the command needs a shell."""
    if not text.startswith("mlw ") or re.search(r"[|&;<>()$`*?\[\]{}~!\\\n]", re.sub("'[^']*'", "", text)):
        return []
    return shlex.split(text, comments=True)


def merge(path: Path, text: str) -> None:
    """Write the text that a page shows to a file. Keep the file's top-level keys that the text does not contain.

    A text without top-level keys replaces the whole file.
    """
    keys = set(re.findall(r"^([\w.-]+):", text, re.MULTILINE))
    kept, below = [], False
    for line in path.read_text().splitlines() if path.exists() and keys else []:
        below = line.partition(":")[0] in keys or (below and (line.startswith((" ", "-")) and bool(line.strip())))
        kept += [] if below else [line]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*kept, text]))


@dataclass
class CommandContext:
    """Details of one command: preparation, answers to prompts, and how it is stopped."""

    before: Callable[[], object] | None = None
    answers: tuple[tuple[str, str], ...] = ()
    when: tuple[str, Callable[[], object]] | None = None  # (text, function to call when the text is printed)
    until: str | None = None  # press Ctrl-C when this text is printed on the terminal
    code: int | tuple[int, ...] = 0
    after: Callable[[str], object] | None = None

    def accepts(self, code: int) -> bool:
        return code in (self.code if isinstance(self.code, tuple) else (self.code,))


@dataclass
class PageRunner:
    """Runs the commands of a page. `on_command` and `assign_file` prepare commands and blocks; `run` starts."""

    laptop: Laptop
    page: str
    replacements: dict[str, str] = field(default_factory=dict)  # pattern → replacement on this machine
    skipped: set[str] = field(default_factory=set)  # commands that the test does not run
    not_shown: tuple[str, ...] = ()  # prefixes of lines that cannot appear here
    timeout: float = 120
    ran: list[str] = field(default_factory=list)
    started: bool = False

    def __post_init__(self) -> None:
        self.place = self.laptop.home
        self._contexts: dict[str, CommandContext] = {}
        self._places: dict[str, str | Callable[[str], object] | None] = {}
        self._state = self.laptop.home.parent / "shell-state"
        self._exported: dict[str, str] = {}

    # -- settings of the test -------------------------------------------------------------------------------------
    def on_command(self, command: str, **what: object) -> None:
        assert command in {entry.text for entry in typed_commands(page(self.page))}, (
            f"{self.page} has no such command: {command}"
        )
        self._contexts[command] = CommandContext(**what)  # type: ignore[arg-type]

    def assign_file(self, first_line: str, where: str | Callable[[str], object] | None) -> None:
        """Set where a block goes. ``where``: a file, a function that gets the text, or None to ignore the block."""
        assert any(block.text.startswith(first_line) for block in blocks(page(self.page))), f"{self.page}: {first_line}"
        self._places[first_line] = where

    # -- execution ------------------------------------------------------------------------------------------------
    def run(self) -> None:
        self.started = True
        for block in blocks(page(self.page)):
            if block.kind in ("console", "bash"):
                for command in commands(block):
                    if command.text not in self.skipped:
                        self.type(command)
            elif block.kind in ("yaml", "toml", "python", "text"):
                self._write(block)

    def type(self, command: Command) -> str:
        context = self._contexts.get(command.text, CommandContext())
        if context.before:
            context.before()
        code, printed = self.shell(self._localized(command.text), context)
        where = f"{self.page}:{command.line}: $ {command.text}"
        assert context.accepts(code), f"{where}\nended with {code}, not {context.code}:\n{printed}"
        shown = tuple(line for line in command.shown if not line.startswith(self.not_shown or ("\0",)))
        lost = missing(tuple(map(self._localized, shown)), printed)
        assert not lost, f"{where}\nprinted no line like\n  " + "\n  ".join(lost) + f"\nbut:\n{printed}"
        self.ran.append(command.text)
        if context.after:
            context.after(printed)
        return printed

    def shell(self, text: str, context: CommandContext | None = None) -> tuple[int, str]:
        """Run one command in the user's shell; return exit code and output."""
        context = context or CommandContext()
        arguments = plain_arguments(text)
        if arguments and not context.answers and not context.until and self._is_ours():
            return self._forked(arguments, context)
        script = f'set -a; cd "{self.place}"\n{text}\ncode=$?; env -0 >"{self._state}"; pwd >"{self._state}.place"\n'
        argv = ["bash", "--noprofile", "--norc", *(["-e"] if "\n" in text else []), "-c", f"{script}exit $code\n"]
        done = self._at_terminal(argv, context) if context.answers or context.until else self._in_pipe(argv, context)
        place = Path(f"{self._state}.place")
        self.place = Path(place.read_text().strip()) if place.exists() else self.place
        if self._state.exists():
            variables = (entry.partition("=") for entry in self._state.read_text().split("\0") if entry)
            self._exported = {name: value for name, _, value in variables if name not in ("_", "TERM")}
        return done

    def forget_variables(self) -> None:
        """Forget all exported variables, as a new shell does."""
        self._state.unlink(missing_ok=True)
        self._exported.clear()

    @property
    def _env(self) -> dict[str, str]:
        return {**self.laptop.env, **self._exported}

    def _is_ours(self) -> bool:
        """Return whether `mlw` is the tested program, and its variables allow a fork."""
        return shutil.which("mlw", path=self._env["PATH"]) == str(MLW) and is_forkable(self._env)

    def _forked(self, arguments: list[str], context: CommandContext) -> tuple[int, str]:
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with start_forked(MLW, tuple(arguments[1:]), self.place, self._env, **streams) as process:
            printed = self._read(process, process.kill, context)
        return process.wait() % 256, printed

    def _localized(self, text: str) -> str:
        for pattern, replacement in self.replacements.items():
            text = re.sub(pattern, lambda _, replacement=replacement: replacement, text)  # type: ignore[misc]
        return text

    def _write(self, block: Block) -> None:
        for first, where in self._places.items():
            if block.text.startswith(first):
                if callable(where):
                    where(block.text)
                elif where:
                    merge(self.place / where, self._localized(block.text))
                return
        if block.file and block.kind != "text":
            merge(self.place / block.file, self._localized(block.text))
        else:
            assert block.kind == "text", f"{self.page}:{block.line}: which file is this?\n{block.text}"

    def _in_pipe(self, argv: list[str], context: CommandContext) -> tuple[int, str]:
        with subprocess.Popen(
            argv,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            printed = self._read(process, lambda: os.killpg(process.pid, signal.SIGKILL), context)
        return process.returncode, printed

    def _read(self, process: Process, kill: Callable[[], None], context: CommandContext) -> str:
        """Return the output of a process until it ends. Kill the process after the timeout."""
        printed, waiting = "", context.when
        assert process.stdout
        timer = threading.Timer(self.timeout, kill)
        timer.start()
        for line in process.stdout:
            printed += line.decode(errors="replace")
            if waiting and waiting[0] in printed:
                waiting[1]()
                waiting = None
        timer.cancel()
        return printed

    def _at_terminal(self, argv: list[str], context: CommandContext) -> tuple[int, str]:
        env = {**self._env, "TERM": "xterm"}
        at = pexpect.spawn(argv[0], argv[1:], env=env, encoding="utf-8", timeout=self.timeout, dimensions=(50, 200))
        printed = ""
        for prompt, answer in context.answers:
            at.expect_exact(prompt)
            printed += f"{at.before}{at.after}"
            at.sendline(answer)
        if context.until:
            at.expect_exact(context.until)
            printed += f"{at.before}{at.after}"
            at.sendintr()
        at.expect(pexpect.EOF)
        printed += str(at.before)
        at.close()
        code = at.exitstatus if at.exitstatus is not None else 128 + int(at.signalstatus or 0)
        ended = context.until and code in (130, 128 + signal.SIGINT)  # the requested Ctrl-C ended it
        return (0 if ended else code), printed


def chown(folder: Path, uid: int) -> None:
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, uid, uid, follow_symlinks=False)
