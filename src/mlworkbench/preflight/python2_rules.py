"""Find Python 2 syntax in a script for Python 3, and translate it line by line.

The parser of the running Python finds the lines.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

from ..environments.facts_access import fact
from .finding import ERROR, WARNING, CheckContext, Finding, Replacement, Script

_MAX_FINDINGS = 20  # maximum findings per script, because each needs several parses
_MAX_PER_LINE = 4  # maximum Python 2 constructs per line
_HINT = "also check integer divisions; to run Python 2 instead, use `python=2.7` in conda_dependencies.yml"

_EXCEPT = re.compile(r"(\s*except\s+(?:\([^)]*\)|[\w.]+))\s*,\s*([a-z_]\w*)\s*:(.*)")
# Python 2 constructs: line pattern, name, and Python 3 equivalent, in which {0} is the first group, and so on.
# A comment at the end of a line is removed first and restored afterward.
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
_AMBIGUOUS_NODES = (ast.Expr, ast.ExceptHandler)
_UNTRANSLATABLE = (
    (re.compile(r"\bdef\s+\w+\s*\([^)]*\([^)]*\)"), "a tuple parameter"),
    (re.compile(r"\blambda\s*\("), "a tuple parameter"),
)


def python2_syntax(context: CheckContext) -> Iterator[Finding]:
    if context.script is None or runs_python2(context):
        return
    lines = context.script.text.splitlines()
    for _ in range(_MAX_FINDINGS):
        number, message = _first_error(lines)
        if not 1 <= number <= len(lines):
            return
        old = lines[number - 1]
        construct, new = _translate(lines, number, message)
        if construct is None:
            return  # the line is invalid in Python 2 as well, or its syntax is newer than this Python
        yield _finding(context.script, number, construct, (old, new), _severity(context))
        if new is None:
            return  # the parser cannot get past this line
        lines[number - 1] = new


def runs_python2(context: CheckContext) -> bool:
    """Return whether the script runs under Python 2."""
    if context.python is not None:
        return context.python[0] == 2
    return _version(context).startswith("2.") or "python2" in (context.compute.python_location or "")


def _severity(context: CheckContext) -> str:
    """Return WARNING for a configured Python of unknown version, otherwise ERROR."""
    is_configured = context.dependencies is None and context.compute.python_location not in (None, "python", "python3")
    return WARNING if is_configured and not _version(context) else ERROR


def _version(context: CheckContext) -> str:
    """Return the version of the existing Python on the target, or "" if unknown."""
    return (fact(context.facts, "script", "version") or "") if context.dependencies is None else ""


def _finding(script: Script, number: int, construct: str, change: tuple[str, str | None], severity: str) -> Finding:
    old, new = change
    message = f"{construct} is Python 2 syntax, but the script runs in Python 3"
    hint = f"use {new.strip()}; {_HINT}" if new else f"convert it to Python 3; {_HINT}"
    fix = Replacement(script.file, number, old, new) if new is not None else None
    return Finding("python2", severity, script.file, number, message, hint, fix)


def _first_error(lines: list[str]) -> tuple[int, str]:
    """Return the line number of the first Python 2 construct, or 0, and the parser's message."""
    text = "\n".join(lines) + "\n"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return getattr(error, "lineno", None) or 0, getattr(error, "msg", "")
    return min(
        (node.lineno for node in ast.walk(tree) if isinstance(node, _AMBIGUOUS_NODES) and _is_python2(node, lines)),
        default=0,
    ), ""


def _is_python2(node: ast.Expr | ast.ExceptHandler, lines: list[str]) -> bool:
    """Return whether a node is Python 2 code that Python 3 accepts with a different meaning."""
    if isinstance(node, ast.ExceptHandler):
        # Since 3.14, `except A, B:` catches two types. A lowercase second name is Python 2's exception variable.
        return (
            isinstance(node.type, ast.Tuple)
            and _EXCEPT.fullmatch(_split_comment(lines[node.lineno - 1])[0]) is not None
        )
    first = node.value.elts[0] if isinstance(node.value, ast.Tuple) and node.value.elts else node.value
    shifted = isinstance(first, ast.BinOp) and isinstance(first.op, ast.RShift)
    return shifted and getattr(getattr(first, "left", None), "id", "") == "print"  # print >>file, text


def _translate(lines: list[str], number: int, message: str, depth: int = 0) -> tuple[str | None, str | None]:
    """Return the Python 2 construct on a line, and the line in Python 3 if the result parses."""
    code, comment = _split_comment(lines[number - 1])
    if "tabs and spaces" in message:
        return "mixing tabs and spaces", None
    if depth == _MAX_PER_LINE or "indent" in message:
        return None, None
    for pattern, construct, template in _STATEMENTS:
        match = pattern.fullmatch(code)
        if not match:
            continue
        new: str | None = template.format(*match.groups()) + comment
        changed = [*lines[: number - 1], new or "", *lines[number:]]
        error_line, next_message = _first_error(changed)
        if error_line == number:  # the line may contain another construct
            new = _translate(changed, number, next_message, depth + 1)[1]
        if new is not None:
            return construct, new
    if match := re.match(r"Missing parentheses in call to '(print|exec)'", message):
        return f"the {match[1]} statement", None  # the statement spans several lines
    return next((construct for pattern, construct in _UNTRANSLATABLE if pattern.search(code)), None), None


def _split_comment(line: str) -> tuple[str, str]:
    """Split a line into code and comment. A ``#`` in a string does not start a comment."""
    quote = ""
    for index, char in enumerate(line):
        if quote:
            quote = "" if char == quote and line[index - 1 : index] != "\\" else quote
        elif char in "'\"":
            quote = char
        elif char == "#":
            code = line[:index].rstrip()
            return code, line[len(code) :]
    return line.rstrip(), line[len(line.rstrip()) :]
