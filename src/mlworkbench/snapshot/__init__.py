"""Snapshots of project files: which files are uploaded, their digests, and the content store."""
