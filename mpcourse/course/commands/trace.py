"""`mpcourse trace`: where a step's time goes, from the profiler traces of several ranks."""

import argparse
import json
from dataclasses import asdict
from statistics import median

from mpcourse.data_parallel.resilience.traces import Explained, Share, explain, read_rank

MOST = 4  # ranks that are shown
OFTEN = 0.05  # of a step: a smaller part is not worth a sentence


def run(options: argparse.Namespace) -> int:
    """Run `mpcourse trace`. Returns exit status 0."""
    found = explain([read_rank(file, number) for number, file in enumerate(options.files)])
    print(json.dumps(asdict(found), indent=1) if options.json else "\n".join(lines(found)))
    return 0


def lines(found: Explained) -> list[str]:
    """Say in about ten lines where the time goes.

    found: what `explain` returned.
    """
    step = max(share.step for share in found.shares)
    what = f"{found.steps} steps" if found.steps else "No steps are named, so all is one step"
    kind = "kernels of GPUs" if found.on_gpu else "operations on the CPU"
    said = [f"{what}, {len(found.shares)} ranks, {kind}. Milliseconds a step:"]
    said.append("  rank    step  computing  transfer  waiting    idle   (hidden messages)")
    shown = sorted(found.shares, key=lambda share: share.waiting)
    if len(shown) > MOST:
        shown = [*shown[: MOST // 2], *shown[-MOST // 2 :]]
    for s in sorted(shown, key=lambda share: share.rank):
        numbers = (s.step, s.computing, s.transfer, s.waiting, s.idle)
        said.append(f"{s.rank:6} " + "{:8.2f} {:9.2f} {:9.2f} {:8.2f} {:7.2f}".format(*(1e3 * n for n in numbers))
                    + f"   ({1e3 * s.hidden:.2f})")  # fmt: skip
    if len(found.shares) > MOST:
        said.append(f"Shown are the ranks that wait least and most of {len(found.shares)}.")
    said += [*_waiting(found, step), *_messages(found, step), *_idle(found, step), *_clocks(found)]
    return said


def _waiting(found: Explained, step: float) -> list[str]:
    total = sum(found.waits.values())
    if len(found.shares) == 1:
        return ["With one trace, waiting for others looks like a transfer. Give the traces of other ranks, too."]
    if not found.matched:
        return ["No collective was found on all ranks, so who waits for whom is not known."]
    if total < OFTEN * step * (len(found.shares) - 1):
        return ["The ranks come to their collectives at about the same time."]
    last = max(found.waits, key=lambda rank: found.waits[rank])
    each = 1e3 * found.waits[last] / (len(found.shares) - 1)
    said = f"The others wait {each:.2f} ms a step for rank {last}: {found.waits[last] / total:.0%} of all waiting."
    late = next(share for share in found.shares if share.rank == last)
    others = [share for share in found.shares if share.rank != last]
    more = {name: 1e3 * (getattr(late, name) - median(getattr(s, name) for s in others)) for name in
            ("computing", "idle")}  # fmt: skip
    cause = max(more, key=lambda name: more[name])
    if more[cause] < each / 3:
        return [said, "It neither computes nor idles much longer than they do: each step may have another cause."]
    if cause == "computing":
        return [said, f"It computes {more[cause]:.2f} ms a step longer than they do: more data, or a slower processor?"]
    return [said, f"It idles {more[cause]:.2f} ms a step longer than they do: its data loader, or its host?"]


def _messages(found: Explained, step: float) -> list[str]:
    transfer = median(share.transfer for share in found.shares)
    hidden = median(share.hidden for share in found.shares)
    if transfer < OFTEN * step:
        return []
    part = transfer / (transfer + hidden)
    return [f"Messages that nothing hides take {transfer / step:.0%} of a step: {part:.0%} of all messages' time."]


def _idle(found: Explained, step: float) -> list[str]:
    least = min(found.shares, key=lambda share: share.idle)
    if least.idle < OFTEN * step:
        return []
    where = "the GPUs have" if found.on_gpu else "the processors have"
    said = f"In {least.idle / step:.0%} of a step or more {where} nothing to do"
    if found.on_gpu and least.launch > least.idle / 2:
        return [f"{said}, mostly for less than 0.1 ms between two kernels: the host launches them too slowly."]
    return [f"{said}, while the host does something else: Python, loading, copies, .item()?"]


def _clocks(found: Explained) -> list[str]:
    furthest: Share = max(found.shares, key=lambda share: abs(share.clock))
    if abs(furthest.clock) < 1e-3:
        return []
    return [f"By the ends of collectives, the clock of rank {furthest.rank} is {1e3 * furthest.clock:+.1f} ms off."]
