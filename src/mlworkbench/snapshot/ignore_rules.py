"""Which names of a project travel: ignore files, what never travels, and what looks like a secret."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from ..paths import DATA_MARK
from .rules import find_match, read_patterns

# A later one of the same folder wins, so that ours has the last word.
IGNORE_FILES = (".gitignore", ".amlignore", ".mlwignore")
OURS = ".mlwignore"

ALWAYS = frozenset({".git", ".hg", ".svn", "__pycache__", ".ipynb_checkpoints", ".DS_Store"})
# The working copy makes its own outputs/; the others were written by the original's runs.
AT_TOP = frozenset({"outputs", "azureml-logs", ".azuremlhistory_git"})
# What our own commands write into a project: bundles of diagnostics, and what a killed download or restore has left.
_WRITTEN_BY_US = re.compile(
    r"\.?diagnostics-[a-z0-9-]+-[a-z]+-[a-z]+-[2-9a-z]{4}\.zip(\.[0-9a-f]{12}\.part)?"
    r"|\.mlw-(unfinished|[0-9a-f]{24}\.part|restore-[0-9a-f]{16})|.*\.mlw-[0-9a-f]{16}\.part",
    re.DOTALL,
)
# A folder that contains one of these is a virtual or conda environment, useless on any other machine, or a cache.
USUAL_MARKS = frozenset({"pyvenv.cfg", "conda-meta", "CACHEDIR.TAG"})
USUAL_NAMES = frozenset({"node_modules", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis"})

# Why a name was left out.
IGNORED = "ignored"
USUAL = "usual"  # left out by default, as most projects want it
SECRET = "secret"
SPECIAL = "special"

_SECRET_FOLDERS = frozenset({".aws", ".ssh", ".gnupg"})
_SECRET_FILE = re.compile(
    r"\.env(\.(?!(example|sample|template)$).*)?|.*\.(pem|key|p12|pfx|ppk)|id_(rsa|dsa|ecdsa|ed25519)(?!.*\.pub$).*"
    r"|[._]netrc|\.git-credentials|\.pgpass|\.pypirc",
    re.IGNORECASE | re.DOTALL,
)


class Rules(NamedTuple):
    """One ignore file: the folder that it stands in, its name, its text."""

    folder: str
    name: str
    text: bytes


Chain = tuple[Rules, ...]  # all that apply to a folder: from the project's top downwards


def judge(chain: Chain, folder: str, name: str, is_folder: bool) -> str:
    """Why this name is left out; "" when it travels. The folders above it are known to travel."""
    if name in ALWAYS or (not folder and name in AT_TOP) or _WRITTEN_BY_US.fullmatch(name):
        return IGNORED
    ignored, by = _find_rule(chain, f"{folder}/{name}" if folder else name, is_folder)
    if ignored:
        return IGNORED
    if ignored is False and by == OURS:
        return ""
    if looks_secret(name, is_folder):
        return SECRET
    return USUAL if is_folder and name in USUAL_NAMES else ""


def judge_content(chain: Chain, folder: str, names: set[str]) -> str:
    """Why a folder is left out because of what it contains; "" when it travels. ``chain``: of the folders above it."""
    if DATA_MARK in names:  # a data folder of ours, with the history, and with keys to machines
        return IGNORED
    if USUAL_MARKS.isdisjoint(names) or _find_rule(chain, folder, True) == (False, OURS):
        return ""
    return USUAL


def _find_rule(chain: Chain, path: str, is_folder: bool) -> tuple[bool | None, str]:
    """Whether the path is ignored, and by which ignore file; None if none mentions it."""
    raw = os.fsencode(path)
    for rules in reversed(chain):
        below = len(os.fsencode(rules.folder)) + 1 if rules.folder else 0
        ignored = find_match(read_patterns(rules.text), raw[below:], is_folder)
        if ignored is not None:
            return ignored, rules.name
    return None, ""


def looks_secret(name: str, is_folder: bool) -> bool:
    """Whether a name is one under which passwords and private keys are usually kept."""
    return name in _SECRET_FOLDERS if is_folder else _SECRET_FILE.fullmatch(name) is not None
