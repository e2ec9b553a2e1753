"""A learner's function on virtual ranks: each rank for itself, counted, explained, and ended."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.monitor import Ending
from mpcourse.course.check.rank import Job, report_of
from mpcourse.course.check.verdict import judge
from mpcourse.course.check.virtual_run import OnVirtualRank, virtually

HEAD = "import sys, time\nimport numpy as np\nfrom mpi4py import MPI\n\n\ndef f(comm, x):\n"
FIRST = 7  # the line at which a body begins


@pytest.fixture
def on_virtual(tmp_path):
    """Call the body of f(comm, x) on some virtual ranks, x being [rank]."""
    file = tmp_path / "e90_f.py"

    def call(body, size=2, head=HEAD):
        file.write_text(head + "".join(f"    {line}\n" for line in body.splitlines()))
        comm = SimpleNamespace(rank=0, status_page=SimpleNamespace(write=lambda *args: None))
        return virtually(
            Answer(file, None), comm, "f", size, lambda rank: (np.array([float(rank)]),), lambda given: given
        )

    return call


@pytest.fixture
def verdict_on(on_virtual, tmp_path):
    """Return the verdict on a body that goes wrong."""

    def judged(body, size=2, head=HEAD):
        with pytest.raises(OnVirtualRank) as caught:
            on_virtual(body, size, head)
        file = tmp_path / "e90_f.py"
        report = report_of(caught.value, None, str(file), 0, 1)
        return judge(
            Job("e90_f", str(file), ["f"], "", str(tmp_path), 10.0), Ending("reported", 1, reports={0: report})
        )

    return judged


def test_messages_are_counted_and_results_kept(on_virtual):
    ran = on_virtual(
        "y = np.empty(1)\ncomm.Sendrecv(x, 1 - comm.rank, recvbuf=y, source=1 - comm.rank)\nx += y\nreturn 7"
    )
    assert ran.results == [7, 7] and ran.run.traffic.tolist() == [[0, 8], [8, 0]]
    assert [x[0] for (x,) in ran.given] == [1.0, 1.0]


def test_ranks_may_have_different_functions(tmp_path):
    file = tmp_path / "e90_f.py"
    file.write_text("def f(comm, x):\n    return 'f', x\n\n\ndef g(comm, x):\n    return 'g', x\n")
    comm = SimpleNamespace(rank=0, status_page=SimpleNamespace(write=lambda *args: None))
    ran = virtually(Answer(file, None), comm, lambda rank: "fg"[rank % 2], 3, lambda rank: (rank,), lambda given: ())
    assert ran.results == [("f", 0), ("g", 1), ("f", 2)]


def test_ranks_share_no_variables_and_have_mpi_of_their_own(on_virtual):
    head = (
        HEAD
        + "    seen.append(comm.rank)\n    return seen, MPI.COMM_WORLD is comm, MPI.SUM\n\n\nseen = []\n\n\ndef g():\n"
    )
    ran = on_virtual("pass", 3, head)
    assert [seen for seen, _, _ in ran.results] == [[0], [1], [2]]
    assert all(same for _, same, _ in ran.results)
    real = sys.modules.get("mpi4py.MPI")
    assert real is None or ran.results[0][2] is not real.SUM


def test_an_exception_names_the_virtual_rank_and_its_line(verdict_on):
    verdict = verdict_on("if comm.rank == 1:\n    raise ValueError('no')\ncomm.Barrier()", 3)
    assert (verdict.kind, verdict.np, verdict.rank, verdict.line) == ("exception", 3, 1, FIRST + 1)
    assert verdict.virtual and "ValueError: no" in verdict.headline and "virtual rank" not in verdict.headline


def test_leaving_names_the_virtual_rank(verdict_on):
    verdict = verdict_on("if comm.rank == 1:\n    sys.exit(3)\ncomm.Barrier()")
    assert (verdict.kind, verdict.rank, verdict.line) == ("early exit", 1, FIRST + 1)


def test_a_deadlock_is_told_with_lines_and_reason(verdict_on):
    verdict = verdict_on("comm.Recv(x, 1 - comm.rank)\ncomm.Send(x, 1 - comm.rank)")
    assert verdict.kind == "deadlock" and verdict.line == FIRST
    assert verdict.details[0].startswith(f"rank 0 waits in Recv(source=1, tag=ANY_TAG), line {FIRST}: `comm.Recv(x")
    assert "receives before it sends" in verdict.why


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("comm.Isend(x, 1 - comm.rank)\ncomm.Recv(x.copy(), 1 - comm.rank)", "request left over"),
        ("comm.send(1, 1 - comm.rank) if comm.rank else None", "deadlock"),
        ("comm.bcast(1) if comm.rank else comm.Barrier()", "different collective calls"),
        ("comm.Sendrecv(np.ones(2), 1 - comm.rank, recvbuf=x, source=1 - comm.rank)", "message too long"),
        ("comm.Sendrecv(np.ones(1, 'f4'), 1 - comm.rank, recvbuf=x, source=1 - comm.rank)", "another type of number"),
        ("comm.Send(x, 2)", "impossible call"),
        ("comm.Send(x, MPI.Status().Get_source())", "impossible call"),
    ],
)
def test_mistakes_between_ranks_have_their_kind_and_line(verdict_on, body, kind):
    verdict = verdict_on(body)
    assert verdict.kind == kind and verdict.line == FIRST
    assert "e90_f.py:" not in "\n".join([verdict.headline, *verdict.details, verdict.why])


def test_what_ranks_print_is_shown_by_rank(verdict_on, capsys):
    verdict = verdict_on("print('I am', comm.rank)\nprint('x' * 10**6) if comm.rank else None\nassert comm.rank == 0")
    (first, own), (second, more) = verdict.printed
    assert (first, own, second) == (0, "I am 0", 1) and more.startswith("I am 1\nxxx") and len(more) < 1000
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("body", ["while comm.rank == 1:\n    pass", "while True:\n    comm.Barrier()"])
def test_an_endless_loop_is_ended(verdict_on, monkeypatch, body):
    monkeypatch.setattr("mpcourse.course.check.virtual_run.LIMIT", 0.3)
    verdict = verdict_on(body)
    assert verdict.kind == "wrong answer" and verdict.line in (FIRST, FIRST + 1)
    assert "endless loop" in verdict.why


@pytest.mark.parametrize(
    ("modules", "after", "right"), [(30, "pass", True), (2, "pass", False), (30, "while True:\n    pass", False)]
)
def test_what_an_import_takes_is_not_the_answers(on_virtual, monkeypatch, tmp_path, modules, after, right):
    """As torch imports 800 modules when its first optimizer is made."""
    monkeypatch.setattr("mpcourse.course.check.virtual_run.LIMIT", 0.2)
    spin = "import sys, time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
    (tmp_path / "large.py").write_text(spin + f"sys.modules |= {{f'large.{{i}}': sys for i in range({modules})}}\n")
    monkeypatch.syspath_prepend(tmp_path)
    body = f"import large\n{after}\nreturn 7"
    try:
        if right:
            assert on_virtual(body).results == [7, 7]
        else:
            with pytest.raises(OnVirtualRank) as caught:
                on_virtual(body)
            assert "no end after" in caught.value.error.got
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "large"]:
            del sys.modules[name]
