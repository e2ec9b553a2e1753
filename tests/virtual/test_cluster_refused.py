"""What virtual ranks refuse: one line that names the call, what does the same here, and MPI's class of the error."""

import json
from pathlib import Path

import pytest

from mpcourse.virtual import MPI, run
from mpcourse.virtual.ranks.refused import NotOffered, stub
from tests.conftest import load_script

FILE = Path(__file__).parents[1] / "programs" / "mpi_mistakes.py"

REFUSED = {
    "c.Create_intercomm": "no Intracomm.Create_intercomm, for they have no intercommunicators: Split",
    "c.Alltoallw": "no Intracomm.Alltoallw, for they have no pieces of different datatypes",
    "c.Bcast_init": "no persistent requests: the nonblocking call each time",
    "c.Send_init": "no persistent requests: the nonblocking call each time, e.g. Isend",
    "c.Create_cart": "no Intracomm.Create_cart, for they have no grids of ranks: compute coordinates",
    "MPI.Compute_dims": "no MPI.Compute_dims, for they have no grids of ranks",
    "c.Get_group": "no Intracomm.Get_group, for they have no groups of ranks: Split",
    "c.Create": "no Intracomm.Create, for they have no groups of ranks: Split",
    "MPI.REAL8": "no MPI.REAL8, for they have no types of Fortran or C++: take C's, e.g. MPI.DOUBLE",
    "c.Mprobe": "no matched probes: Probe, then Recv",
    "c.Spawn": "no dynamic processes: start all ranks at once",
    "c.Neighbor_alltoall": "no neighbourhood collectives: Sendrecv",
    "c.Psend_init": "no partitioned messages",
    "c.Create_dist_graph": "no graphs of ranks",
    "MPI.Win": "no MPI.Win, for they have no windows",
    "MPI.File": "no MPI.File, for they have no files: gather to one rank",
    "MPI.DOUBLE.Create_vector": "no Datatype.Create_vector, for they have no derived datatypes: send a contiguous copy",
    "MPI.INT.Pack": "no derived datatypes",
    "MPI.Intercomm": "no intercommunicators",
    "MPI.Session": "no sessions",
    "MPI.Status().tomemory": "no Status.tomemory",
    "c.isent": "Intracomm has no isent, neither on virtual ranks nor in mpi4py: did you mean isend?",
    "c.Al_reduce": "did you mean Allreduce?",
    "c.reduce_scatter": "did you mean Reduce_scatter?",
    "MPI.SUN": "MPI has no SUN, neither on virtual ranks nor in mpi4py: did you mean SUM?",
    "MPI.Request.Wait_all": "Request has no Wait_all, neither on virtual ranks nor in mpi4py: did you mean Waitall?",
    "MPI.Request().result": "Request has no result, neither on virtual ranks nor in mpi4py",
}


@pytest.mark.parametrize("expression", REFUSED)
def test_what_is_not_offered_is_told_by_name_and_kind_and_a_mistyped_name_reads_otherwise(expression):
    with pytest.raises(NotOffered) as told:
        run(lambda c: eval(expression, {"MPI": MPI, "c": c}), 1)
    assert REFUSED[expression] in str(told.value) and "\n" not in str(told.value)


def test_an_import_of_what_is_not_offered_is_refused_in_the_same_words():
    with MPI.as_mpi4py(), pytest.raises(ImportError, match=r"no MPI.Win, for they have no windows"):
        exec("from mpi4py.MPI import Win")


def test_every_name_of_mpi4py_is_offered_or_refused_in_a_line():
    """On the module, on communicators and on the classes that are here."""
    theirs = stub()
    classes = ("Comm", "Intracomm", "Request", "Status", "Op", "Datatype")
    assert len(theirs[""]) > 300 and all(len(theirs[name]) > 10 for name in classes)
    for where, names in [(MPI, theirs[""]), *((getattr(MPI, name), theirs[name]) for name in classes)]:
        for name in sorted(names):
            if name.startswith("__") or name in ("COMM_WORLD", "COMM_SELF") or name in dir(where):
                continue
            with pytest.raises(NotOffered) as told:
                getattr(where, name)
            assert name in str(told.value) and "neither" not in str(told.value) and "\n" not in str(told.value)


def test_errors_have_the_classes_of_a_real_mpi(mpirun):
    done = mpirun(1, FILE)
    real, numbers, vendor = json.loads(done.stdout)
    with MPI.as_mpi4py():
        mistakes = load_script(FILE)
    found = {}
    for name, mistake in mistakes.MISTAKES.items():
        with pytest.raises(MPI.Exception) as told:
            run(mistake, 1)
        found[name] = mistakes.name_of(told.value)
    if vendor == "Open MPI":  # which does not tell of these
        for name in ("truncated at once", *(name for name in real if name.startswith("same memory"))):
            del found[name], real[name]
    assert found == real
    if vendor == "MPICH":
        assert {name: getattr(MPI, name) for name in numbers} == numbers
