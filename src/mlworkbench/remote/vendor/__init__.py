"""Third-party modules bundled unchanged: ``pynvml.py`` from nvidia-ml-py, via ``hosts/bundle.py``."""
