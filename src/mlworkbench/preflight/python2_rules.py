"""Python 2 in a script that Python 3 will run: found with this Python's own parser, line by line, with the new line."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

from ..environments.known import fact
from .finding import ERROR, WARNING, Case, Finding, Replacement, Script

_MOST = 20  # lines of one script that are listed at a time: each costs a few parses
_DEEPEST = 4  # things of Python 2 on one line
_HINT = "also check integer divisions; to run Python 2 instead, use `python=2.7` in conda_dependencies.yml"

_EXCEPT = re.compile(r"(\s*except\s+(?:\([^)]*\)|[\w.]+))\s*,\s*([a-z_]\w*)\s*:(.*)")
# What Python 2 allowed: the line, what to call it, and the same in Python 3; {0} is the first group and so on.
# A comment at the end of the line is taken off before and put back after.
_STATEMENTS: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (re.compile(r"(.*?\b)print\s*>>\s*([^,]+),\s*(.*?),?\s*"), "the print statement", "{0}print({2}, file={1})"),
    (re.compile(r"(.*?)\bprint\s+(.+?),\s*"), "the print statement", '{0}print({1}, end=" ")'),
    (re.compile(r"(.*?)\bprint\s+(.+?)\s*"), "the print statement", "{0}print({1})"),
    (re.compile(r"(.*?)\bprint(['\"].*?)\s*"), "the print statement", "{0}print({1})"),
    (_EXCEPT, "`except X, e`", "{0} as {1}:{2}"),
    (re.compile(r"(.*?\braise\s+[\w.]+)\s*,\s*([^,]+?)\s*"), "`raise X, message`", "{0}({1})"),
    (re.compile(r"(.*?)\bexec\s+(.+?)\s+in\s+(.+?)\s*"), "the exec statement", "{0}exec({1}, {2})"),
    (re.compile(r"(.*?)\bexec\s+(.+?)\s*"), "the exec statement", "{0}exec({1})"),
    (re.compile(r"(.*?)`([^`]+)`(.*)"), "backquotes", "{0}repr({1}){2}"),
    (re.compile(r"(.*?)<>(.*)"), "`<>`", "{0}!={1}"),
    (re.compile(r"(.*?)\b(\d+)[lL]\b(.*)"), "a long integer such as 10L", "{0}{1}{2}"),
    (re.compile(r"(.*?)\b(0)([0-7]+)\b(.*)"), "an octal number such as 0777", "{0}0o{2}{3}"),
    (re.compile(r"(.*?)\b[uU]([rR]['\"].*)"), 'a ur"…" string', "{0}{1}"),
)
_OTHERWISE = (ast.Expr, ast.ExceptHandler)
_PARTS = (
    (re.compile(r"\bdef\s+\w+\s*\([^)]*\([^)]*\)"), "a tuple parameter"),
    (re.compile(r"\blambda\s*\("), "a tuple parameter"),
)


def python2_syntax(case: Case) -> Iterator[Finding]:
    if case.script is None or runs_python2(case):
        return
    lines = case.script.text.splitlines()
    for _ in range(_MOST):
        number, said = _trouble(lines)
        if not 1 <= number <= len(lines):
            return
        old = lines[number - 1]
        what, new = _translate(lines, number, said)
        if what is None:
            return  # wrong in any Python, or newer than this one: not ours to judge
        yield _finding(case.script, number, what, (old, new), _severity(case))
        if new is None:
            return  # the parser sees no further
        lines[number - 1] = new


def runs_python2(case: Case) -> bool:
    """Return whether the script runs in Python 2."""
    if case.python is not None:
        return case.python[0] == 2
    return _version(case).startswith("2.") or "python2" in (case.compute.python_location or "")


def _severity(case: Case) -> str:
    """A Python that the user named and nobody has looked at may be any."""
    named = case.dependencies is None and case.compute.python_location not in (None, "python", "python3")
    return WARNING if named and not _version(case) else ERROR


def _version(case: Case) -> str:
    """Version of the Python that runs scripts there, if it is not ours and somebody has asked it."""
    return (fact(case.facts, "script", "version") or "") if case.dependencies is None else ""


def _finding(script: Script, number: int, what: str, change: tuple[str, str | None], severity: str) -> Finding:
    old, new = change
    message = f"{what} is Python 2 syntax, but the script runs in Python 3"
    hint = f"use {new.strip()}; {_HINT}" if new else f"convert it to Python 3; {_HINT}"
    fix = Replacement(script.file, number, old, new) if new is not None else None
    return Finding("python2", severity, script.file, number, message, hint, fix)


def _trouble(lines: list[str]) -> tuple[int, str]:
    """Line of the first thing that Python 3 does not read, and the parser's words; 0 if all is well."""
    text = "\n".join(lines) + "\n"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return getattr(error, "lineno", None) or 0, getattr(error, "msg", "")
    return min(
        (node.lineno for node in ast.walk(tree) if isinstance(node, _OTHERWISE) and _is_old(node, lines)), default=0
    ), ""


def _is_old(node: ast.Expr | ast.ExceptHandler, lines: list[str]) -> bool:
    """What Python 3 reads too, as something else that nobody means."""
    if isinstance(node, ast.ExceptHandler):
        # From 3.14 on `except A, B:` means two kinds; with a small letter it is the name of the exception, as it was.
        return isinstance(node.type, ast.Tuple) and _EXCEPT.fullmatch(_split(lines[node.lineno - 1])[0]) is not None
    first = node.value.elts[0] if isinstance(node.value, ast.Tuple) and node.value.elts else node.value
    shifted = isinstance(first, ast.BinOp) and isinstance(first.op, ast.RShift)
    return shifted and getattr(getattr(first, "left", None), "id", "") == "print"  # print >>file, text


def _translate(lines: list[str], number: int, said: str, depth: int = 0) -> tuple[str | None, str | None]:
    """What of Python 2 a line has, and the line in Python 3, if the parser gets beyond it then."""
    code, comment = _split(lines[number - 1])
    if "tabs and spaces" in said:
        return "mixing tabs and spaces", None
    if depth == _DEEPEST or "indent" in said:
        return None, None
    for pattern, what, template in _STATEMENTS:
        found = pattern.fullmatch(code)
        if not found:
            continue
        new: str | None = template.format(*found.groups()) + comment
        changed = [*lines[: number - 1], new or "", *lines[number:]]
        at, again = _trouble(changed)
        if at == number:  # perhaps there is more of it on the line
            new = _translate(changed, number, again, depth + 1)[1]
        if new is not None:
            return what, new
    if found := re.match(r"Missing parentheses in call to '(print|exec)'", said):
        return f"the {found[1]} statement", None  # over several lines
    return next((what for pattern, what in _PARTS if pattern.search(code)), None), None


def _split(line: str) -> tuple[str, str]:
    """Code and comment of a line; a # in quotes is neither."""
    quote = ""
    for index, sign in enumerate(line):
        if quote:
            quote = "" if sign == quote and line[index - 1 : index] != "\\" else quote
        elif sign in "'\"":
            quote = sign
        elif sign == "#":
            code = line[:index].rstrip()
            return code, line[len(code) :]
    return line.rstrip(), line[len(line.rstrip()) :]
