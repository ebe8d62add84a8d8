"""Read-only queries for the pages and the API, one module per subject.

Most are functions that take a ``History``.
"""
