"""This machine as mlw needs it: what is there is gathered, then judged. Nothing is changed, nobody is called."""
