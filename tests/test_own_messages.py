"""Failures are data (``Failure``, ``remote/shared/failure.py``). No code reads messages that are for people."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests import test_architecture as architecture
from tests.test_architecture import MODULES, name, nodes

SEARCHES = {"partition", "rpartition", "split", "rsplit", "startswith", "endswith", "removeprefix", "removesuffix"}
SEARCHES |= {"find", "rfind", "index", "count"}
PATTERNS = {"search", "match", "fullmatch", "findall", "finditer", "sub"}
PROSE = {"message", "hint", "cause", "contact", "detail"}  # attributes that hold text for people
# What other programs and packages print, where texts of ours have the same words.
FOREIGN = {
    *("permission denied", "Permission denied", "banner line", "timed out"),  # ssh, Docker
    *("cannot connect", "failed to connect"),  # Docker, podman
    *("No space left on device", "Disk quota exceeded"),  # the system
    *("end of stream", "tabs and spaces"),  # PyYAML, Python
    *("out of memory", "too old", "kernel image"),  # CUDA
    "hint",  # uv: its lines, not ours
    "mlw completion",  # what the user wrote into a shell's startup file
    "no kernel",  # the name of a sign in remote/gpus/signs.py
}
# Modules that read what other programs print, from tables that also say what it means.
OTHER_PROGRAMS = {
    "config/yamlfile.py": "PyYAML",
    "remote/complaints.py": "Docker and podman",
    "remote/gpus/signs.py": "frameworks, in the log of a script",
    "targets/gpucheck.py": "NVML and nvidia-smi; for NVML's codes remote/gpus/nvml.py has the words",
}
# May read a text of ours.
READERS = {
    "report/failures.py": "runs that earlier versions ended: their events have a text only",
    "inferred_state.py": "details that earlier versions stored in the index",
}


@cache
def texts() -> list[tuple[int, str]]:
    """Every text in the code that may be part of a message, with the identity of its node."""
    found = []
    for path in MODULES:
        documentation = {id(node.body[0].value) for node in nodes(path) if _is_documented(node)}
        found += [
            (id(node), node.value)
            for node in nodes(path)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            if id(node) not in documentation and " " in node.value.strip()
        ]
    return found


def _is_documented(node: ast.AST) -> bool:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None


def constants(path: Path) -> dict[str, list[ast.Constant]]:
    """The texts behind the names of a module: assigned at its top, or what a loop takes out of those."""
    found: dict[str, list[ast.Constant]] = {}
    for node in nodes(path)[0].body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    found[target.id] = _texts_in(node.value)
    for node in nodes(path):
        if isinstance(node, (ast.comprehension, ast.For)):
            for one in ast.walk(node.target):
                if isinstance(one, ast.Name) and isinstance(node.iter, ast.Name):
                    found.setdefault(one.id, found.get(node.iter.id, []))
    return found


def _texts_in(node: ast.AST) -> list[ast.Constant]:
    return [one for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]


def readings(path: Path) -> Iterator[tuple[ast.AST, ast.AST, ast.AST]]:
    """Each place that looks for something in a text: the place, what is looked for, and the text."""
    for node in nodes(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            function = node.func
            if function.attr in SEARCHES:
                yield node, node.args[0], function.value
            elif function.attr in PATTERNS:
                of_module = ast.unparse(function.value) == "re"
                yield node, node.args[0] if of_module else function.value, node.args[-1]
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            yield node, node.left, node.comparators[0]


def is_prose(text: ast.AST, caught: set[str]) -> bool:
    """Whether a text is a message: an attribute of an error or a run, or an exception as text."""
    for node in ast.walk(text):
        if isinstance(node, ast.Attribute) and node.attr in PROSE:
            return True
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "str" and node.args[:1]:
            return ast.unparse(node.args[0]) in caught
    return False


def own_words(wanted: ast.AST, known: dict[str, list[ast.Constant]]) -> list[str]:
    """The words that are looked for and occur in another text of ours."""
    literals = _texts_in(wanted)
    for node in ast.walk(wanted):
        if isinstance(node, ast.Name):
            literals += known.get(node.id, [])
    words = [one for one in literals if " " in one.value.strip() or "hint" in one.value]
    return [
        one.value
        for one in words
        if one.value not in FOREIGN
        and any(one.value in text and one.value != text and id(one) != at for at, text in texts())
    ]


def readers(path: Path) -> list[str]:
    caught = {node.name for node in nodes(path) if isinstance(node, ast.ExceptHandler) and node.name}
    known, found = constants(path), []
    for place, wanted, text in readings(path):
        words = own_words(wanted, known)
        if words or is_prose(text, caught):
            found.append(f"{name(path)}:{place.lineno}: {ast.unparse(place)[:100]} {words[:2] or ''}")
    return found


def test_nothing_reads_a_message_of_ours():
    found = {name(path): readers(path) for path in MODULES}
    allowed = READERS.keys() | OTHER_PROGRAMS.keys()
    assert [line for place, lines in found.items() for line in lines if place not in allowed] == []
    assert {place for place in allowed if not found.get(place)} == set(), "an exception that is not needed"


@pytest.mark.parametrize(
    "code",
    [
        'what, _, hint = problem.partition("; hint: ")',
        'error.message.removeprefix("x: ")',
        'if "x" in (run.cause or ""): pass',
        'if run.contact.startswith("no"): pass',
        'try: pass\nexcept OSError as error: re.search("x", str(error))',
        '_SIGNS = (("the log is empty", 1),)\nfound = [hint for sign, hint in _SIGNS if sign in text]',
    ],
)
def test_the_readers_of_messages_are_found(code, tmp_path, monkeypatch):
    path = tmp_path / "module.py"
    path.write_text(code)
    monkeypatch.setattr(architecture, "SOURCE", tmp_path)
    assert len(readers(path)) == 1


@pytest.mark.parametrize("code", ['name, _, value = line.partition("=")', 'error.code == "x"', 'path.endswith(".py")'])
def test_other_texts_may_be_read(code, tmp_path):
    path = tmp_path / "module.py"
    path.write_text(code)
    assert readers(path) == []
