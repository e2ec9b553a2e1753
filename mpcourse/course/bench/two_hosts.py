"""The same training on two ranks of one host and on a rank each of two: where two nodes are slower than one.

ChainerMN's tutorial measured it in 2018: 45 s on two GPUs of one node, 418 s on one GPU of each of two.
"""

import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mpcourse.common import launch
from mpcourse.common.errors import UserError
from mpcourse.course.bench.record import Record
from mpcourse.course.doctor.hosts import host_names
from mpcourse.course.doctor.ranks import read_facts
from mpcourse.course.doctor.subprocesses import run
from mpcourse.course.forkserver import Plain

BATCH, RATE = 100, 0.01
STEPS = 10  # training steps that make one run
PARAMETERS = 1_796_010
ETHERNET = 118e6  # bytes/s of payload that TCP carries over 1 Gbit/s, in frames of 1500 bytes
RANKS = Path(__file__).with_name("two_hosts_ranks.py")
MEASURED = Path(__file__).parent / "measured" / "two_hosts.json"


def two_hosts(runs: int = 5, hosts: str = "") -> Iterator[Record]:
    """Time a training step and the all-reduce in it, in ms, with both ranks on one host and with one rank on each.

    hosts: two names, as in "a,b"; the first one runs both ranks. The last records are what the formula says that the
    link adds, for 1 Gbit/s and for the bandwidth found.

    The MLP of 784-1000-1000-10 units, 100 random examples a rank, SGD; one thread a rank.
    """
    names = host_names(hosts)
    if len(names) != 2:
        raise UserError(f"--hosts {hosts}: two hosts are compared with one of them, so name two")
    far = _measured(names, 1, runs)  # first, for it may fail
    near = _measured(names[:1], 2, runs)
    for place, times in (("one host", near), ("two hosts", far)):
        for what, seconds in times.items():
            if what == "bandwidth":
                yield Record(f"{place}: bandwidth", [seconds / 1e6], "MB/s")
            else:
                name = what if "all-reduce" in what else f"a step, {what}"
                yield Record(f"{place}: {name}", [1e3 * s for s in seconds], "ms")
    for side in ("flat", "bucketed"):
        added = statistics.median(far[side]) - statistics.median(near[side])
        yield Record(f"the link adds to a step, {side}", [1e3 * added], "ms")
    for label, bandwidth in (("118 MB/s", ETHERNET), ("the bandwidth found", far["bandwidth"])):
        yield Record(f"predicted with {label}", [1e3 * predicted(2, bandwidth)], "ms")


def predicted(ranks: int, bandwidth: float = ETHERNET, nbytes: int = 4 * PARAMETERS) -> float:
    """Return the least seconds of an all-reduce of `nbytes` over links with that bandwidth in bytes/s each way."""
    return 2 * (ranks - 1) / ranks * nbytes / bandwidth


def as_measured() -> dict[str, Any]:
    """Return what `mpcourse bench two-hosts --json` once found: machine, records, and the hosts in "setting".

    "noise" is what `mpcourse.common.quiet.noise` found before. `lessons/studies/two_hosts.py` measures it again.
    """
    return json.loads(MEASURED.read_text())


def _measured(hosts: list[str], each: int, runs: int) -> dict[str, Any]:
    command = Plain().command("-P", str(RANKS), str(STEPS), str(runs))
    deadline = 60.0 + 30.0 * runs  # seconds
    environment = launch.rank_environment(one_machine=False)
    done = run(launch.hosts_command(hosts, command, each), deadline, environment)
    if done.status != 0:
        raise UserError(f"ranks on {', '.join(hosts)} failed ({done.reason}): `mpcourse doctor --hosts` finds out why")
    facts: dict[str, Any] = {}
    for fact in read_facts(done.output):
        facts |= {fact["what"]: fact["seconds"]} if "what" in fact else fact
    return facts
