"""Failures are data (``Failure``, ``remote/shared/failure.py``). No code parses messages for people."""

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
PROSE = {"message", "hint", "cause", "contact", "detail"}  # attributes that contain text for people
# Output of other programs and packages that contains the same words as our texts.
FOREIGN = {
    *("permission denied", "Permission denied", "banner line", "timed out"),  # ssh, Docker
    *("cannot connect", "failed to connect"),  # Docker, podman
    *("No space left on device", "Disk quota exceeded"),  # the operating system
    *("end of stream", "tabs and spaces"),  # PyYAML, Python
    *("out of memory", "too old", "kernel image"),  # CUDA
    "hint",  # in the output of uv
    "mlw completion",  # text from the user's shell startup file
    "no kernel",  # the name of a pattern in remote/gpus/log_patterns.py
}
# Modules that parse the output of other programs with tables that also contain explanations.
OTHER_PROGRAMS = {
    "config/yaml_tree.py": "PyYAML",
    "remote/engine_errors.py": "Docker and podman",
    "remote/gpus/log_patterns.py": "frameworks, in the log of a script",
    "remote/gpus/nvidia_smi.py": "nvidia-smi",
    "remote/ranks.py": "Python, in the standard error of a script",
}
# Modules that may parse messages of mlw.
READERS = {
    "report/failure_report.py": "runs that earlier versions ended: their events have a text only",
}


@cache
def texts() -> list[tuple[int, str]]:
    """Return every string in the code that may be part of a message, with the ID of its node."""
    strings = []
    for path in MODULES:
        documentation = {id(node.body[0].value) for node in nodes(path) if _is_documented(node)}
        strings += [
            (id(node), node.value)
            for node in nodes(path)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            if id(node) not in documentation and " " in node.value.strip()
        ]
    return strings


def _is_documented(node: ast.AST) -> bool:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None


def constants(path: Path) -> dict[str, list[ast.Constant]]:
    """Map names of a module to their strings: top-level assignments, and loops over them."""
    strings: dict[str, list[ast.Constant]] = {}
    for node in nodes(path)[0].body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    strings[target.id] = _texts_in(node.value)
    for node in nodes(path):
        if isinstance(node, (ast.comprehension, ast.For)):
            for name in ast.walk(node.target):
                if isinstance(name, ast.Name) and isinstance(node.iter, ast.Name):
                    strings.setdefault(name.id, strings.get(node.iter.id, []))
    return strings


def _texts_in(node: ast.AST) -> list[ast.Constant]:
    return [child for child in ast.walk(node) if isinstance(child, ast.Constant) and isinstance(child.value, str)]


def readings(path: Path) -> Iterator[tuple[ast.AST, ast.AST, ast.AST]]:
    """Yield each search in a text: the node, the pattern, and the searched text."""
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
    """Return whether a text is a message: an attribute of an error or a run, or an exception as text."""
    for node in ast.walk(text):
        if isinstance(node, ast.Attribute) and node.attr in PROSE:
            return True
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "str" and node.args[:1]:
            return ast.unparse(node.args[0]) in caught
    return False


def own_words(pattern: ast.AST, named: dict[str, list[ast.Constant]]) -> list[str]:
    """Return the parts of a pattern that also occur in a message of mlw."""
    literals = _texts_in(pattern)
    for node in ast.walk(pattern):
        if isinstance(node, ast.Name):
            literals += named.get(node.id, [])
    literal_words = [literal for literal in literals if " " in literal.value.strip() or "hint" in literal.value]
    return [
        literal.value
        for literal in literal_words
        if literal.value not in FOREIGN
        and any(literal.value in text and literal.value != text and id(literal) != at for at, text in texts())
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
