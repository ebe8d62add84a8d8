"""Folder for a plugin's starter file, which the client's ``hosts/bundle.py`` adds."""
