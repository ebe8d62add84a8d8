"""Modules of others that travel with us as they are: ``pynvml.py`` of nvidia-ml-py, by way of ``hosts/library.py``."""
