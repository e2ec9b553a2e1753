"""Errors that users of several rooms see, and the commands that several errors name."""

from pathlib import Path

# Whether lessons are in the package. Then it was installed from a wheel, and there is no clone with a Makefile.
WHEEL = Path(__file__).parents[1].joinpath("course", "files").is_dir()
SETUP = "`pip install torch mpich mpi4py jupyterlab`" if WHEEL else "`make setup`"
SETUP_MPICH = "`pip install --force-reinstall mpich mpi4py`" if WHEEL else "`make setup MPI=mpich`"


class UserError(Exception):
    """A mistake that the user can correct. The command line turns it into one line and exit status 2.

    The message says what is wrong, and what to do.
    """


class RankFailed(RuntimeError):
    """Another rank has ended, has raised or does something else, so that what this rank waits for will not come."""
