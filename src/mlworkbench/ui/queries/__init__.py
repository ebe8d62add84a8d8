"""What the desk answers, one file for each kind of thing. Functions of a History; they change nothing."""
