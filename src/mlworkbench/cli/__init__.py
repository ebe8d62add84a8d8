"""Command-line interface: parse arguments, call the use cases, and print results."""

import os
import sys

from ..import_isolation import drop_relative_folders, module_path

# A project may be untrusted, so nothing is imported from the current folder. This must run before the first
# import that could be resolved there.
sys.path[:] = module_path()
drop_relative_folders(os.environ)
if os.name == "nt":
    os.environ["NODEFAULTCURRENTDIRECTORYINEXEPATH"] = "1"  # otherwise Windows searches the current folder for programs
