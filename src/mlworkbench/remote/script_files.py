"""What companions found out about files that a script wrote, for the list of its outputs."""

from __future__ import annotations

from .shared.unread_files import UnreadFiles

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import List, Set


class ScriptFiles:
    """Findings about files. Paths are relative to the working copy and have no slash at the end."""

    def __init__(self) -> None:
        self.keep: List[str] = []  # files and folders to collect with the outputs
        self.recorded: Set[str] = set()  # files and folders whose data is in the run's metrics files
        self.unread = UnreadFiles()  # messages for the summary of the run
