"""The command line: a file per noun; words in, words out; no decisions."""
