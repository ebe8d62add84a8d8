"""Modules that both client and target import: folder layout, encodings, IDs, and safe file access.

All other modules of ``remote`` run on targets only, except those listed in
``tests/test_architecture.py``.
"""
