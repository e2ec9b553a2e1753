"""The one error that the command line turns into a single line and exit status 2."""


class UserError(Exception):
    """A mistake that the person at the keyboard can mend. The message is one line: what is wrong, and what to do."""
