"""Code that is copied to targets: supervisor, launcher, and in-run library.

It imports nothing else from the package. The folder is copied unchanged and started as
``python -I -S .../remote/__main__.py``. It uses only the standard library and relative imports, and
runs on Python 3.8 and newer.
"""
