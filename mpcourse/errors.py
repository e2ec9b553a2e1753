"""Errors that users of several rooms see."""


class UserError(Exception):
    """A mistake that the person at the keyboard can correct. The command line turns it into one line and exit status 2.

    The message says what is wrong, and what to do.
    """


class RankFailed(RuntimeError):
    """Another rank has ended, has raised, or does something else: what this one waits for will not come."""
