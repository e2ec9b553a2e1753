"""Which ranks send messages to each other, along each axis of a grid."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from mpcourse.plot.style import INK, color, figure

BLACK_ON = ("#E69F00", "#56B4E9", "#F0E442", "#CC79A7")  # fills on which black is easier to read than white


def groups(axes: Mapping[str, Sequence[Sequence[int]]], nodes: Sequence[int], title: str) -> Figure:
    """Draw a panel for each axis: ranks as boxes on their nodes; a communicator's ranks share a colour and a letter.

    axes: for each axis its groups of ranks. nodes: for each rank the number of its node. A line below the panel names a
    group that is on more than one node. Raises ValueError where groups and nodes do not name the same ranks.
    """
    for axis, axis_groups in axes.items():
        if sorted(rank for group in axis_groups for rank in group) != list(range(len(nodes))):
            raise ValueError(f"the groups of the {axis} axis are not the ranks 0 to {len(nodes) - 1}, each once")
    order = list(dict.fromkeys(nodes))
    most = max(list(nodes).count(node) for node in order)
    width, height = max(7.0, 0.55 * most * len(axes) + 1), 0.6 * len(order) + 1
    made, panels = figure(title, len(axes), width, height)
    for panel, (axis, axis_groups) in zip(panels, axes.items(), strict=True):
        of = {rank: number for number, group in enumerate(axis_groups) for rank in group}
        place = dict.fromkeys(order, 0)
        for rank, node in enumerate(nodes):
            x, y = place[node], -order.index(node)
            place[node] += 1
            fill = color(of[rank])
            panel.add_patch(Rectangle((x + 0.06, y + 0.06), 0.88, 0.78, facecolor=fill, edgecolor=INK, linewidth=0.8))
            ink = "black" if fill in BLACK_ON else "white"
            letter = chr(ord("A") + of[rank] % 26)
            panel.text(x + 0.5, y + 0.45, f"{rank} {letter}", ha="center", va="center", fontsize=8, color=ink)
        for node in order:
            if panel is panels[0]:
                where = (-0.2, 0.45 - order.index(node))
                panel.text(*where, f"node {node}", ha="right", va="center", fontsize=8, color=INK)
            y = -order.index(node)
            panel.add_patch(
                FancyBboxPatch(
                    (0, y), most, 0.9, boxstyle="round,pad=0.04", facecolor="none", edgecolor="#808080", linewidth=1
                )
            )
        apart = sum(len({nodes[rank] for rank in group}) > 1 for group in axis_groups)
        crossing = f"{apart} of {len(axis_groups)} groups cross nodes" if apart else "each group inside one node"
        panel.set_title(f"{axis}: {crossing}", fontsize=9, color=INK, loc="left")
        panel.set_xlim(-0.1, most + 0.1)
        panel.set_ylim(-len(order) + 0.9, 1.0)
        panel.axis("off")
        panel.set_aspect("equal")
    return made
