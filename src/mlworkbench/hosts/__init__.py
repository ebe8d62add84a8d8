"""Hosts, which run commands and store files: this machine, or a machine reached over SSH."""
