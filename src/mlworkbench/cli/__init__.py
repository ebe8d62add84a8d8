"""The command line: a file per noun; words in, words out; no decisions."""

import os
import sys

# A project may come from a stranger: nothing of ours is imported from the current folder, as an empty entry in
# PYTHONPATH would have it. Here, because this runs before the first module that could be taken from there.
sys.path[:] = [entry for entry in sys.path if os.path.isabs(entry) and entry != os.getcwd()]
