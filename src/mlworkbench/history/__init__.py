"""Run folders are the truth; an SQLite index over them makes them quick to list."""
