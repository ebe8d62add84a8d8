"""The starter file of a plugin travels in this folder, put here by ``hosts/library.py`` of the client."""
