"""The run history: run folders on disk, and an SQLite index derived from them."""
