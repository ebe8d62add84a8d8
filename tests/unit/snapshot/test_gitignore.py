"""Ignore patterns match as in git: a table of cases, and a comparison with git on generated patterns."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlworkbench.snapshot.gitignore import find_match, read_patterns

CASES = [
    # patterns, path, is a folder, ignored
    ("*.csv", "data/a.csv", False, True),
    ("*.csv", "data/a.csv.gz", False, None),
    ("/a.txt", "a.txt", False, True),
    ("/a.txt", "b/a.txt", False, None),
    ("b/a.txt", "b/a.txt", False, True),
    ("b/a.txt", "c/b/a.txt", False, None),
    ("build/", "build", True, True),
    ("build/", "build", False, None),
    ("build/", "src/build", True, True),
    ("data/**", "data", True, None),
    ("data/**", "data/x/y", False, True),
    ("data/**\n!data/keep.csv", "data/keep.csv", False, False),
    ("**/logs", "a/b/logs", True, True),
    ("**/logs", "logs", True, True),
    ("a/**/b", "a/b", False, True),
    ("a/**/b", "a/x/y/b", False, True),
    ("a/*/b", "a/x/y/b", False, None),
    ("*", ".hidden", False, True),
    ("*\n!*.py", "train.py", False, False),
    ("!*.py\n*", "train.py", False, True),
    ("# x", "# x", False, None),
    ("\\# x", "# x", False, True),
    ("\\!important", "!important", False, True),
    ("name   ", "name", False, True),
    ("name\\ ", "name ", False, True),
    ("name\r\nother\r", "name", False, True),
    ("\ufeffname", "name", False, True),
    ("[a-c].txt", "b.txt", False, True),
    ("[!a-c].txt", "b.txt", False, None),
    ("[^a-c].txt", "d.txt", False, True),
    ("[[:digit:]]x", "7x", False, True),
    ("[[:nonsense:]]x", "7x", False, None),
    ("[]]", "]", False, True),
    ("[", "[", False, None),
    ("a?c", "abc", False, True),
    ("a?c", "a/c", False, None),
    ("a\nb", "a\nb", False, None),
    ("*.txt", "line\nend.txt", False, True),
    ("tail\\", "tail\\", False, None),
    ("", "x", False, None),
    ("/", "x", True, None),
    ("!", "x", False, None),
]


@pytest.mark.parametrize(("text", "path", "is_folder", "ignored"), CASES)
def test_pattern_table(text: str, path: str, is_folder: bool, ignored: bool | None) -> None:
    assert find_match(read_patterns(text.encode()), path.encode(), is_folder) is ignored


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 12 + "*b", "a" * 120),
        ("x/" + "*a" * 12 + "*b", "x/" + "a" * 120),
        ("**/a/" * 12 + "b", "a/" * 120 + "c"),
        ("**/*a*a*a/" * 6 + "b", "aaaaaaaa/" * 40 + "c"),
        ("**\\/a/" * 12 + "b", "a/" * 120 + "c"),
        ("x" + " " * 1_000_000, "y"),
    ],
)
def test_no_pattern_takes_for_ever(pattern: str, path: str) -> None:
    code = "import sys\nfrom mlworkbench.snapshot.gitignore import find_match, read_patterns\n"
    code += "pattern, path = sys.stdin.buffer.read().split(b'\\n')\n"
    code += "print(find_match(read_patterns(pattern), path, False))"
    done = subprocess.run(
        [sys.executable, "-c", code], input=f"{pattern}\n{path}".encode(), capture_output=True, timeout=60
    )
    assert (done.stdout, done.stderr) == (b"None\n", b"")


MANY_STARS = [
    ("*a*b*", "xaxbx", True),
    ("*a*ab", "aab", True),
    ("*a*ab", "ab", None),
    ("*ab*ab", "abab", True),
    ("*?a*", "a", None),
    ("*[ab]*b/*a*b", "xab/ab", True),
    ("a*b/*c*d", "ab/b/cd", None),
    ("**/a*/**/b*c", "a/x/bb/bc", True),
    ("**/a/**/a/b", "a/a/b", True),
    ("**/a/**/a/b", "a/b", None),
    ("**/a/*/b/**/c", "a/a/b/b/c", True),
    ("**/*a/*b/**", "xb/a/a/b/c", True),
]


@pytest.mark.parametrize(("text", "path", "ignored"), MANY_STARS)
def test_patterns_of_many_stars(text: str, path: str, ignored: bool | None) -> None:
    assert find_match(read_patterns(text.encode()), path.encode(), False) is ignored


PIECES = st.sampled_from(
    [
        "a",
        "b",
        "foo",
        "*",
        "**",
        "?",
        "/",
        "/",
        "[ab]",
        "[!a]",
        "[a-c]",
        "[[:alpha:]]",
        "[z-a]",
        "\\*",
        "\\a",
        "\\",
        " ",
        "!",
        "#",
        "[",
        "]",
        "[^b-",
        "-",
        "[]a]",
        "[[:x:]]",
        "[a\\]]",
        "**/",
        "/**",
        "é",
        "[:",
        "\\ ",
    ]
)
LINES = st.lists(st.builds("".join, st.lists(PIECES, min_size=1, max_size=5)), min_size=1, max_size=5)
NAMES = st.sampled_from(["a", "b", "foo", "ab", "c", "*", " ", "foo ", "z", "]", "[", "!", "#a", "é", "-", "a b", "\\"])
PATHS = st.lists(st.builds("/".join, st.lists(NAMES, min_size=1, max_size=4)), min_size=1, max_size=30)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(lines=LINES, paths=PATHS)
def test_same_as_git(lines: list[str], paths: list[str]) -> None:
    text = "\n".join(lines).encode()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "init", "-q", folder], check=True, env={"PATH": os.environ["PATH"], "HOME": folder})
        Path(folder, ".gitignore").write_bytes(text)
        made = {path for path in paths if _make_file(Path(folder, path))}
        answer = subprocess.run(
            ["git", "-C", folder, "ls-files", "-o", "--exclude-standard", "-z"],
            check=True,
            capture_output=True,
            env={"PATH": os.environ["PATH"], "HOME": folder},
        ).stdout.decode()
    assert {path for path in made if _travels(text, path)} == set(answer.split("\0")) - {"", ".gitignore"}


def _make_file(path: Path) -> bool:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(exist_ok=False)
    except OSError:  # a file exists in place of a folder, or vice versa
        return False
    return True


def _travels(text: bytes, path: str) -> bool:
    """Return whether the file is uploaded. As in a scan, an ignored folder excludes everything below it."""
    parts = path.encode().split(b"/")
    for count in range(1, len(parts) + 1):
        if find_match(read_patterns(text), b"/".join(parts[:count]), count < len(parts)):
            return False
    return True
