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
# A folder that holds one of these is a virtual or conda environment, useless on any other machine; or a data folder of
# ours, with the history, and with keys to machines.
ENVIRONMENT = frozenset({"pyvenv.cfg", "conda-meta", DATA_MARK})

# Why a name was left out.
IGNORED = "ignored"
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
    said = None
    path = os.fsencode(f"{folder}/{name}" if folder else name)
    for rules in reversed(chain):
        below = len(os.fsencode(rules.folder)) + 1 if rules.folder else 0
        said = find_match(read_patterns(rules.text), path[below:], is_folder)
        if said is not None:
            break
    if said:
        return IGNORED
    if looks_secret(name, is_folder) and not (said is False and rules.name == OURS):
        return SECRET
    return ""


def looks_secret(name: str, is_folder: bool) -> bool:
    """Whether a name is one under which passwords and private keys are usually kept."""
    return name in _SECRET_FOLDERS if is_folder else _SECRET_FILE.fullmatch(name) is not None
