"""Causal attention over ranks that share the tokens: which rank computes what, and in which step of the ring."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Polygon

from mpcourse.plot.style import INK, color, figure, ink_on, label, shade

Part = tuple[range, ...]


def attention(layouts: Mapping[str, Sequence[Part]], title: str) -> Figure:
    """Draw for each layout a square of queries and keys, in the colours of the ranks that compute them.

    layouts: name -> for each rank the pieces of consecutive positions that it has. Together they make a sequence.

    Each row of pieces has the number of the rank that has these queries, and each column that of the rank of its keys.
    The number in a rectangle is the step of the ring in which its rank has these keys: step 0 is a rank's own keys.
    What no query may see is white.
    Raises ValueError for pieces that are not consecutive.
    """
    made, axes = figure(title, columns=len(layouts), width=3.6 * len(layouts), height=4.0)
    for axis, (name, parts) in zip(axes, layouts.items(), strict=True):
        pieces = [(piece, rank) for rank, part in enumerate(parts) for piece in part if piece]
        if any(piece.step != 1 for piece, _ in pieces):
            raise ValueError("only pieces of consecutive tokens can be drawn")
        length = max(piece.stop for piece, _ in pieces)
        for queries, rank in pieces:
            for keys, source in pieces:
                if keys.start > queries.start:
                    continue
                fill = shade(color(rank), 0.75)
                x, y, wide, high = keys.start, queries.start, len(keys), len(queries)
                corners = [(x, y), (x, y + high), (x + wide, y + high), (x + wide, y)]
                shape = Polygon(corners[: 3 if keys == queries else 4], facecolor=fill, edgecolor="white")
                axis.add_patch(shape)
                shape.set_gid(f"rank {rank}")
                step, third = (rank - source) % len(parts), 2 if keys != queries else 3
                at = (x + wide / third, y + high * (1 - 1 / third))
                axis.text(*at, str(step), fontsize=8, color=ink_on(fill), ha="center", va="center")
        axis.set(xlim=(0, length), ylim=(length, 0), aspect="equal")
        middles, ranks = [(piece.start + piece.stop) / 2 for piece, _ in pieces], [str(rank) for _, rank in pieces]
        axis.set_xticks(middles, ranks)
        axis.set_yticks(middles, ranks)
        axis.tick_params(length=0)
        axis.grid(False)
        label(axis, "rank of the keys", "rank of the queries" if axis is axes[0] else "")
        axis.set_title(name, fontsize=9, color=INK, loc="left")
    return made
