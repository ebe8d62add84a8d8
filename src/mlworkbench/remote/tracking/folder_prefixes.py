"""Name metrics by the folder of their event file, without names that differ from run to run.

Folders such as ``train`` and ``validation`` are always part of a name. Other folders are used only if two of them
contain the same tag: the first folder keeps the plain name. Names such as ``Nov16_07-53-15_vm`` (PyTorch),
``version_0`` (Lightning), and time stamps are never used, because runs could not be compared.
"""

from __future__ import annotations

import os
import re

from .summary_value import shorten

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Optional, Sequence, Tuple

PHASES = frozenset("train training val valid validation test testing eval evaluation dev".split())
MAX_PREFIX = 200  # maximum bytes, because the prefix is repeated for each scalar
_MAX_NAMES = 20000  # maximum names whose folder is remembered
_LOG_ROOTS = frozenset(
    "runs logs log logdir log_dir lightning_logs tb tblogs tb_logs tensorboard tensorboard_log tensorboard_logs"
    " outputs".split()
)
_EVENT_FOLDERS = frozenset("events event tfevents event_files summaries summary".split())
_RUN_SPECIFIC = re.compile(
    r"[^\W\d_]{3,5}\.?\d{1,2}_\d{2}-\d{2}-\d{2}(?:_.*)?"  # PyTorch: Nov16_07-53-15_vm and a comment
    r"|version_\d+"  # Lightning
    r"|\d{9,19}(?:\.\d+)?"  # seconds or nanoseconds since 1970: add_hparams
    r"|\d{2}[-_:.]\d{2}[-_:.]\d{2}"  # 07-53-15
    r"|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9a-f]{16,64}",
    re.S,
)
_DATE = re.compile(
    r"(?<!\d)(?:19|20)\d{2}[-_.]?[01]\d[-_.]?[0-3]\d(?:[-_T. ]{0,2}[0-2]\d(?:[-_:.]?\d{2}){1,2}(?:\.\d+)?)?(?!\d)"
)


def list_prefixes(folder: str, number: int, log_folders: "Iterable[str]" = ()) -> "List[str]":
    """Return possible prefixes for the metrics of a folder, the preferred one first.

    ``number`` is the number of the folder in this run. The last prefix contains it, and no other folder has it.
    ``log_folders`` are other folders with event files; a writer in a subfolder is named relative to its parent.
    """
    parts = [part for part in map(_stable_part, folder.split("/")) if part]
    last_root = max([index for index, part in enumerate(parts) if part.lower() in _LOG_ROOTS], default=-1)
    named = [part for part in parts[last_root + 1 :] if part.lower() not in _EVENT_FOLDERS]
    phase = named.pop() + "/" if named and named[-1].lower() in PHASES else ""
    prefixes = [phase]
    parent = max([other for other in log_folders if folder.startswith(other + "/")], key=len, default=None)
    relative = [] if parent is None else list(filter(None, map(_stable_part, folder[len(parent) + 1 :].split("/"))))
    if relative:
        prefixes.append(_join(relative))
    if named:
        prefixes.append(_join(named) + phase)
        prefixes.append(_join(parts[: last_root + 1] + named) + phase)
    prefixes.append("run_%d/%s" % (number, phase))
    return list(dict.fromkeys(prefixes))


def _stable_part(part: str) -> str:
    """Return the part of a folder's name that is the same in every run."""
    return "" if _RUN_SPECIFIC.fullmatch(part) else _DATE.sub("", part).strip(" -_.") if _DATE.search(part) else part


def _join(parts: "Sequence[str]") -> str:
    return shorten(os.fsencode("/".join(parts)), MAX_PREFIX) + "/"


class NameRegistry:
    """The names in use, and the folders that use them."""

    def __init__(self) -> None:
        self._owners: Dict[Tuple[str, str], str] = {}  # kind and name → folder
        self._names: Dict[Tuple[str, str, str], str] = {}  # folder, kind, and tag → name

    def find(self, folder: str, kind: str, tag: str) -> "Optional[str]":
        """Return the name that was chosen earlier."""
        return self._names.get((folder, kind, tag))

    def choose(self, folder: str, kind: str, tag: str, prefixes: "Sequence[str]") -> str:
        """Choose a name that no other folder uses, and remember it."""
        name = prefixes[-1] + tag
        for prefix in prefixes:
            if self._owners.get((kind, prefix + tag), folder) == folder:
                name = prefix + tag
                break
        self.restore(folder, kind, tag, name)
        return name

    def restore(self, folder: str, kind: str, tag: str, name: str) -> None:
        """Remember a name that this or an earlier supervisor chose."""
        if len(self._names) < _MAX_NAMES:
            self._names[folder, kind, tag] = name
            self._owners.setdefault((kind, name), folder)
