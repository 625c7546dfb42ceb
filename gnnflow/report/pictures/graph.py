"""The graph's in-degrees with the hub threshold, and GraphFlat's blow-up in bytes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gnnflow.report.formats import bytes_text, count_text, percent_text, ratio_text, short_count
from gnnflow.report.inputs import BlowUp, GraphSummary, ReportInputs
from gnnflow.report.pictures.canvas import HALF_WIDTH, Picture, Swatch, Table, colour, draw, plain_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_HEIGHT = 260.0
_FEW_DECADES = 50.0  # how many times its low end the high end of an axis is
_GAP = 0.96  # bars end a little before their bin does


def in_degree_histogram(inputs: ReportInputs) -> Picture:
    """Return the log-log histogram of in-degrees, with hubs beyond their threshold."""
    graph = inputs.graph
    # degree bins are counted over all types and relations
    title = f"In-edges per node of all {len(graph.types)} types" if graph.types else "In-edges per node"
    bins = [entry for entry in graph.in_degree_histogram if entry[2] > 0]
    if not any(low > 0 for low, _, _ in bins):
        words = "The graph store has no in-degree histogram, or none of its nodes has an in-edge."
        return Picture(key="degrees", title=title, missing=words)
    none = sum(nodes for low, _, nodes in bins if low == 0)
    mean = graph.num_edges / max(graph.num_nodes, 1)
    hubs = _hub_words(graph)
    isolated = f" {count_text(none)} nodes have no in-edges and are not on the log axis." if none else ""
    legend = [Swatch("accent", "area", "nodes")]
    if graph.num_hubs:
        legend.append(Swatch("warm", "area", f"hubs: {count_text(graph.num_hubs)}"))
    return Picture(
        key="degrees",
        title=title,
        alt=f"Log-log histogram of in-degrees, {count_text(mean)} on average. {hubs}{isolated}",
        caption=f"{hubs}{isolated}",
        svg=draw("degrees", partial(_paint_degrees, graph=graph), width=HALF_WIDTH, height=_HEIGHT),
        legend=legend,
        table=Table(
            summary="In-degrees in figures",
            head=("in-edges", "nodes", "share"),
            rows=[_degree_cells(entry, graph.num_nodes) for entry in bins],
        ),
    )


def blow_up_bars(inputs: ReportInputs) -> Picture:
    """Return the bytes GraphFlat read and wrote, side by side."""
    title = "GraphFlat's blow-up"
    blow_up = inputs.blow_up
    if blow_up is None or blow_up.bytes_in <= 0:
        words = "GraphFlat did not run or did not record its bytes, so its blow-up is not known."
        return Picture(key="blow-up", title=title, missing=words)
    if blow_up.layout == "store":
        words = "GraphFlat wrote the targets alone: the graph fits in memory, where training cut its batches."
        return Picture(key="blow-up", title=title, missing=words)
    read, wrote = bytes_text(blow_up.bytes_in), bytes_text(blow_up.bytes_out)
    summary = f"{read} of graph became {wrote} of neighbourhoods: {ratio_text(blow_up.ratio)}"
    return Picture(
        key="blow-up",
        title=title,
        alt=f"Two bars: {summary}.",
        caption=(f"{summary}, or {bytes_text(blow_up.bytes_per_target)} per target, in the {blow_up.layout} layout."),
        svg=draw("blow-up", partial(_paint_blow_up, blow_up=blow_up), width=HALF_WIDTH, height=_HEIGHT),
    )


def _hub_words(graph: GraphSummary) -> str:
    if graph.reads_all:
        return f"Nothing is sampled: all in-edges of a node are read, {count_text(graph.max_in_degree)} at most."
    threshold = count_text(graph.hub_threshold)
    if not graph.hub_threshold:
        return "No hub threshold was set."
    if not graph.num_hubs:
        return f"No node has more than {threshold} in-edges, so none counts as a hub."
    noun = "node has" if graph.num_hubs == 1 else "nodes have"
    return (
        f"{count_text(graph.num_hubs)} {noun} more than {threshold} in-edges, which are re-indexed: "
        "split over several reducers, sampled and merged again."
    )


def _degree_cells(entry: tuple[int, int, int], num_nodes: int) -> tuple[str, str, str]:
    low, high, nodes = entry
    label = count_text(low) if high == low + 1 else f"{count_text(low)} to {count_text(high - 1)}"
    return (label, count_text(nodes), percent_text(nodes / max(num_nodes, 1)))


def _paint_degrees(figure: Figure, *, graph: GraphSummary) -> None:
    axes = figure.add_subplot()
    axes.set_xscale("log")
    axes.set_yscale("log")
    plain_axes(axes, x_label="in-edges of a node (count, log)", y_label="nodes (count, log)")
    hubs_from = float(graph.hub_threshold) if graph.num_hubs else float("inf")
    for low, high, nodes in graph.in_degree_histogram:
        if low > 0 and nodes > 0:
            _bar(axes, float(low), min(float(high), hubs_from), nodes, role="accent")
            _bar(axes, max(float(low), hubs_from), float(high), nodes, role="warm")
    counts = [nodes for low, _, nodes in graph.in_degree_histogram if low > 0 and nodes > 0]
    axes.set_ylim(0.6, max(counts) * 2.4)
    if graph.hub_threshold:
        _mark_threshold(axes, graph.hub_threshold)
    for axis in (axes.xaxis, axes.yaxis):
        _label_counts(axis)


def _label_counts(axis: Axis) -> None:
    """Label whole numbers on a log axis: powers of ten, and numbers between them where few powers are in view."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    between = (1.0, 2.0, 4.0, 6.0, 8.0) if high < _FEW_DECADES * low else (1.0,)
    axis.set_major_locator(LogLocator(base=10, subs=between, numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: short_count(value) if value == round(value) else ""))
    axis.set_minor_formatter(NullFormatter())  # matplotlib's own is TeX


def _bar(axes: Axes, low: float, high: float, nodes: int, *, role: str) -> None:
    if high > low:
        axes.bar(low, nodes - 0.5, width=high * _GAP - low, bottom=0.5, align="edge", color=colour(role))


def _mark_threshold(axes: Axes, threshold: int) -> None:
    low, high = axes.get_xlim()
    axes.set_xlim(low, max(high, threshold * 1.6))
    axes.axvline(threshold, color=colour("ink"), linewidth=1.0, linestyle=(0, (3, 2)))
    middle = (axes.get_xlim()[0] * axes.get_xlim()[1]) ** 0.5
    left = threshold > middle
    axes.annotate(
        f"hubs beyond {short_count(threshold)}",
        (threshold, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(-6 if left else 6, -3),
        textcoords="offset points",
        ha="right" if left else "left",
        va="top",
        fontweight="bold",
    )


def _paint_blow_up(figure: Figure, *, blow_up: BlowUp) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes = figure.add_subplot()
    plain_axes(axes, x_label="what GraphFlat read and wrote", y_label="bytes on storage")
    values = (blow_up.bytes_in, blow_up.bytes_out)
    axes.bar([0, 1], values, width=0.5, color=[colour("quiet"), colour("accent")])
    for column, value in enumerate(values):
        axes.annotate(
            bytes_text(value),
            (column, value),
            xytext=(0, 5),
            textcoords="offset points",
            ha="center",
            fontweight="bold",
        )
    axes.set_xticks([0, 1], ["read", "written"])
    axes.tick_params(axis="x", length=0)
    axes.margins(x=0.35, y=0.15)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: bytes_text(value) if value else "0"))
