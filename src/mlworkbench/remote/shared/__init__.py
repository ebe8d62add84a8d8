"""What client and target both import: the layout of folders, encodings, identifiers, and safe access to files.

Everything else in ``remote`` runs on targets only, but for what ``tests/test_architecture.py`` lists.
"""
