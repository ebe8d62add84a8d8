"""Rules for which project files are uploaded: ignore files, fixed exclusions, and likely secrets."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from ..paths import DATA_MARK
from .gitignore import find_match, read_patterns

# Within a folder, later files take precedence, so that ``.mlwignore`` wins.
IGNORE_FILES = (".gitignore", ".amlignore", ".mlwignore")
MLW_IGNORE = ".mlwignore"

ALWAYS_IGNORED = frozenset({".git", ".hg", ".svn", "__pycache__", ".ipynb_checkpoints", ".DS_Store"})
# The working copy creates its own ``outputs/``; Azure ML Workbench runs wrote the others.
TOP_LEVEL_NAMES = frozenset({"outputs", "azureml-logs", ".azuremlhistory_git"})
# Files that mlw writes into a project: diagnostics bundles, and leftovers of killed downloads and restores.
_MLW_FILES = re.compile(
    r"\.?diagnostics-[a-z0-9-]+-[a-z]+-[a-z]+-[2-9a-z]{4}\.zip(\.[0-9a-f]{12}\.part)?"
    r"|\.mlw-(unfinished|[0-9a-f]{24}\.part|restore-[0-9a-f]{16})|.*\.mlw-[0-9a-f]{16}\.part",
    re.DOTALL,
)
# A folder that contains one of these is a cache or an environment, which is useless on another machine.
SKIP_MARKERS = frozenset({"pyvenv.cfg", "conda-meta", "CACHEDIR.TAG"})
SKIPPED_NAMES = frozenset(
    {"node_modules", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis"}
)

# Reasons why a name is excluded.
IGNORED = "ignored"
USUAL = "usual"  # excluded by default, as most projects expect
SECRET = "secret"
SPECIAL = "special"

_SECRET_FOLDERS = frozenset({".aws", ".ssh", ".gnupg"})
_SECRET_FILE = re.compile(
    r"\.env(\.(?!(example|sample|template)$).*)?|.*\.(pem|key|p12|pfx|ppk)|id_(rsa|dsa|ecdsa|ed25519)(?!.*\.pub$).*"
    r"|[._]netrc|\.git-credentials|\.pgpass|\.pypirc",
    re.IGNORECASE | re.DOTALL,
)


class Rules(NamedTuple):
    """An ignore file with its folder, name, and text."""

    folder: str
    name: str
    text: bytes


Chain = tuple[Rules, ...]  # ignore files that apply to a folder, starting at the project root


def exclusion_reason(chain: Chain, folder: str, name: str, is_folder: bool) -> str:
    """Return why this name is excluded, or "". Its parent folders must be included."""
    if name in ALWAYS_IGNORED or (not folder and name in TOP_LEVEL_NAMES) or _MLW_FILES.fullmatch(name):
        return IGNORED
    ignored, by = _find_rule(chain, f"{folder}/{name}" if folder else name, is_folder)
    if ignored:
        return IGNORED
    if ignored is False and by == MLW_IGNORE:
        return ""
    if looks_secret(name, is_folder):
        return SECRET
    return USUAL if is_folder and name in SKIPPED_NAMES else ""


def folder_exclusion_reason(chain: Chain, folder: str, names: set[str]) -> str:
    """Return why the content of a folder excludes it, or "". ``chain``: ignore files of its parents."""
    if DATA_MARK in names:  # an mlw data folder, with the history and SSH keys
        return IGNORED
    if SKIP_MARKERS.isdisjoint(names) or _find_rule(chain, folder, True) == (False, MLW_IGNORE):
        return ""
    return USUAL


def _find_rule(chain: Chain, path: str, is_folder: bool) -> tuple[bool | None, str]:
    """Return whether the path is ignored, and by which ignore file; None if no pattern matches."""
    raw = os.fsencode(path)
    for rules in reversed(chain):
        below = len(os.fsencode(rules.folder)) + 1 if rules.folder else 0
        ignored = find_match(read_patterns(rules.text), raw[below:], is_folder)
        if ignored is not None:
            return ignored, rules.name
    return None, ""


def looks_secret(name: str, is_folder: bool) -> bool:
    """Return whether files with this name usually contain passwords or private keys."""
    return name in _SECRET_FOLDERS if is_folder else _SECRET_FILE.fullmatch(name) is not None
