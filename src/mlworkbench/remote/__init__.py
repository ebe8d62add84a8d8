"""What travels to a target: supervisor, launcher, in-run library. Imports nothing of the rest of the package.

The folder is copied as it is and started as ``python -I -S .../remote/__main__.py``; it therefore uses the
standard library only, relative imports only, and runs on Python 3.8 and newer.
"""
