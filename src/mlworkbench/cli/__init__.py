"""The command line: a file per noun; words in, words out; no decisions."""

import os
import sys

from ..isolation import drop_relative_folders, module_path

# A project may be untrusted: nothing of ours is imported from the current folder. Here, because this runs
# before the first module that could be taken from there.
sys.path[:] = module_path()
drop_relative_folders(os.environ)
if os.name == "nt":
    os.environ["NODEFAULTCURRENTDIRECTORYINEXEPATH"] = "1"  # else Windows looks for programs there, too
