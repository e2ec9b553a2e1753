# %% [markdown]
# # Appendix 05: this machine
#
# **How well does alpha + n beta describe two real processes, and how fast are libraries?** This page belongs to lesson
# [05 All-reduce by hand](../05_mpi_allreduce.ipynb). It takes about 10 minutes to read and a minute to run.

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
import json
from pathlib import Path

from mpcourse import plot
from mpcourse.collectives.cost import Cost, seconds

# %% [markdown]
# Two processes measure their own alpha, beta and gamma: from long messages that go back and forth, from additions, and
# from a few all-reduces. Then they all-reduce arrays of many sizes, by recursive doubling, by the ring, by MPI's own
# `Allreduce`, by gloo, which PyTorch uses on CPUs, and by the course's own `allreduce`. In each of three runs these
# five take turns.

# %% tags=["nbval-ignore-output"]
Path("../scratch").mkdir(exist_ok=True)
# !mpcourse bench crossovers --np 2 --runs 3 --json > ../scratch/crossovers.json

# %% tags=["nbval-ignore-output"]
records = json.loads(Path("../scratch/crossovers.json").read_text())["records"]
measured, runs = ({r["what"]: r[which] for r in records} for which in ("median", "runs"))
mine = Cost(
    alpha=1e-6 * measured["alpha: a message"],
    beta=1e-9 / measured["1/beta: sending"],
    gamma=1e-9 / measured["1/gamma: adding"],
)
print(f"alpha {1e6 * mine.alpha:.1f} us, beta {1e9 * mine.beta:.3f} ns a byte, gamma {1e9 * mine.gamma:.3f} ns a byte")

# %% [markdown]
# This alpha is a few times as long as the latency that lesson 00 measured. Lesson 00 sends a message that MPI delivers
# without any other work. Here alpha is fitted to whole all-reduces, so it also contains the time that Python needs for
# a round: slicing the array, making the requests, and waiting for both of them.
#
# ## The formula and the clock
#
# With two ranks the ring sends as many bytes as recursive doubling, in one message more, and each rank adds only half
# of the elements. So by the formula it saves n gamma / 2 and loses alpha.

# %% tags=["nbval-ignore-output"]
sizes = sorted({int(what.split()[0]) for what in measured if " B: " in what})
labels = [f"{s} B" if s < 1024 else f"{s // 1024} KiB" if s < 1 << 20 else f"{s >> 20} MiB" for s in sizes]
took = {name: [measured[f"{n} B: {name}"] for n in sizes] for name in ("doubling", "ring", "allreduce", "MPI", "gloo")}
formulas = {f"{name}, formula": [1e6 * seconds(name, 2, n, mine) for n in sizes] for name in ("doubling", "ring")}


def drawn(rows, title):
    figure = plot.lines(sizes, rows, "bytes", "microseconds", title, log_y=True)
    plot.label_bytes(figure, sizes)
    return figure.axes[0]


axis = drawn(
    {name: took[name] for name in ("doubling", "ring")} | formulas, "Two real ranks: measured, and by the formula"
)
for line, formula in zip(axis.lines[:2], axis.lines[2:]):
    formula.set(color=line.get_color(), linestyle="--", marker="")
axis.legend(fontsize=8, frameon=False)
by_formula = [n for n, a, b in zip(labels, *formulas.values()) if b < a]
by_clock = [n for n, s in zip(labels, sizes) if max(runs[f"{s} B: ring"]) < min(runs[f"{s} B: doubling"])]
print(f"the ring wins by the formula at {', '.join(by_formula) or 'none'}")
print(f"the ring wins in each of the three runs at {', '.join(by_clock) or 'none'}")
for name in ("doubling", "ring"):
    off = [clock / formula for clock, formula in zip(took[name], formulas[f"{name}, formula"])]
    print(f"{name:8} measured / formula:", ", ".join(f"{n} {factor:.1f}" for n, factor in zip(labels, off)))

# %% [markdown]
# The formula has the same three parameters for all sizes. The last two lines show how far it is off at each size; in
# our runs that was up to a factor of about three. The formula knows nothing of three things.
#
# - MPI copies short messages and makes long ones wait for their receiver.
# - A new receive buffer costs time, and recursive doubling needs one that is twice as long as the ring's.
# - Long arrays exceed the cores' caches. Then each byte costs more than beta and gamma say.
#
# If the ring already wins at smaller sizes than the formula says, look at the factor of recursive doubling there. We
# call one of them faster only where it wins in each of the three runs.
#
# ## Libraries
#
# The course's `allreduce` chooses recursive doubling, the ring or Rabenseifner's algorithm by their formulas. It sends
# long arrays in pieces of half a megabyte, so that a core can add each piece while the piece is still in its cache.

# %% tags=["nbval-ignore-output"]
drawn({name: took[name] for name in ("allreduce", "MPI", "gloo")}, "Two real ranks: the course, MPI and gloo")
print("size        MPI / allreduce (three runs)   gloo / allreduce (three runs)")
for label, size in zip(labels, sizes):
    shown = ""
    for other in ("MPI", "gloo"):
        ratios = sorted(b / a for a, b in zip(runs[f"{size} B: allreduce"], runs[f"{size} B: {other}"]))
        shown += f"{ratios[1]:15.2f} ({ratios[0]:.2f} to {ratios[2]:.2f})"
    print(f"{label:>9} {shown}")

# %% tags=["checked"]
# checked: the ranks measured all five at each size, three times
assert all(len(runs[f"{n} B: {name}"]) == 3 for n in sizes for name in took)

# %% [markdown]
# A ratio below 1 means that the library was faster than `allreduce`. Up to 256 KiB MPI was faster, by a factor of 1.4
# to 2.5 in our runs. For short arrays the difference is the time of Python around a message. At some hundred KiB,
# `allreduce` also chose recursive doubling by its formula where the ring was faster by the clock. gloo exchanges data
# through TCP sockets even on one machine, and each call passes through several threads, which takes a fraction of a
# millisecond. MPI and `allreduce` use memory that both processes share.
#
# `mpcourse bench allreduce --np 2` goes up to 40 MB, and also measures what copying alone takes.
