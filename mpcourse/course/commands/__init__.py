"""Commands that take a page of their own; the others stand in mpcourse/course/cli.py."""
