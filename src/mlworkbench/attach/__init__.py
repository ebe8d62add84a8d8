"""Making a machine a target, and undoing that: the verbs of ``mlw computetarget attach|detach|update|reset-key``."""
