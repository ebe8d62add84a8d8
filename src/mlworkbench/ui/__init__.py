"""The Workbench in the browser: the verbs of the command line as pages, on this machine only."""
