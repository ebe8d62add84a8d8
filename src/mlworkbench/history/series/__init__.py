"""The points of a run, stored so that a million of them draw at once."""
