"""Errors that users of several rooms see, and the commands that several of them name."""

from pathlib import Path

# Whether lessons are in the package: then it was installed from a wheel, and no clone with a Makefile is at hand.
WHEEL = Path(__file__).parents[1].joinpath("course", "files").is_dir()
SETUP = "`pip install torch mpich mpi4py jupyterlab`" if WHEEL else "`make setup`"
SETUP_MPICH = "`pip install --force-reinstall mpich mpi4py`" if WHEEL else "`make setup MPI=mpich`"


class UserError(Exception):
    """A mistake that the person at the keyboard can correct. The command line turns it into one line and exit status 2.

    The message says what is wrong, and what to do.
    """


class RankFailed(RuntimeError):
    """Another rank has ended, has raised, or does something else: what this one waits for will not come."""
