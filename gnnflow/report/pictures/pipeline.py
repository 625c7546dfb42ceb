"""Which side of training waits for which: an epoch of the trainer and of its reader, cut into their parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gnnflow.graph.facts import READER_WAIT, TRAINER_PARTS
from gnnflow.report.formats import percent_text, seconds_text
from gnnflow.report.inputs import ReportInputs
from gnnflow.report.pictures.canvas import FULL_WIDTH, Picture, Swatch, Table, draw, plain_axes
from gnnflow.report.pictures.palette import colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Profile = Mapping[str, float]

Part = tuple[str, str, str, float]
"""Name, colour, shape and seconds."""
Bar = tuple[str, list[Part]]

_BAR_HEIGHT = 24.0
_AXIS_HEIGHT = 50.0
_MOST_RANKS = 8
_OTHER = "other"
# (part, what it is called, its colour, its shape); both sides' waiting looks the same
_TRAINER_LOOKS = (
    ("wait", "waiting", "quiet", "hatch"),
    ("forward", "forward", "accent", "area"),
    ("backward", "backward", "class2", "area"),
    ("exchange", "exchange with other ranks", "warm", "area"),
    ("update", "update", "class4", "area"),
    (_OTHER, "other", "grid", "area"),
)
_READER_LOOKS = (
    ("read", "reading and verifying", "class3", "area"),
    ("decode", "decoding", "class5", "area"),
    ("build", "merging, building blocks", "class6", "area"),
    ("sums", "first-layer sums", "class7", "area"),
    (READER_WAIT, "waiting", "quiet", "hatch"),
)


def pipeline_bars(inputs: ReportInputs) -> Picture:
    """Return the seconds per epoch of the trainer and its reader, of each rank or of those that wait longest."""
    title = "Which side waits for which"
    profiles = [row for row in inputs.profiles if row.get("seconds", 0.0) > 0]
    if not profiles:
        return Picture(key="pipeline", title=title, missing="Training recorded no profile of its epochs.", wide=True)
    order = sorted(range(len(profiles)), key=lambda rank: -waiting_share(profiles[rank]))
    shown = sorted(order[:_MOST_RANKS])
    bars = [bar for rank in shown for bar in _bars(profiles[rank], rank=rank if len(profiles) > 1 else None)]
    used = {part[:3] for _, parts in bars for part in parts if part[3] > 0}
    looks = [look[1:] for look in (*_TRAINER_LOOKS, *_READER_LOOKS[:-1]) if look[1:] in used]
    worst = profiles[order[0]]
    said = f"{waiting_text(worst)} {_meaning(worst)}"
    more = f" Of {len(profiles)} ranks these {len(shown)} wait longest." if len(profiles) > len(shown) else ""
    height = _AXIS_HEIGHT + _BAR_HEIGHT * len(bars)
    return Picture(
        key="pipeline",
        title=title,
        alt=f"Stacked bars of one epoch's seconds. {said}",
        caption=f"{said}{more} Means of the epochs after the first, which also checks the files.",
        svg=draw("pipeline", partial(_paint, bars=bars), width=FULL_WIDTH, height=height),
        legend=[Swatch(role, shape, name) for name, role, shape in looks],
        table=_table(bars),
        wide=True,
    )


def waiting_share(profile: Profile) -> float:
    """Return the share of an epoch for which the trainer waits."""
    return profile.get(f"{TRAINER_PARTS[0]}_seconds", 0.0) / max(profile["seconds"], 1e-9)


def waiting_text(profile: Profile) -> str:
    """Say for which shares of an epoch the two sides wait."""
    idle = min(1.0, profile.get(f"{READER_WAIT}_seconds", 0.0) / max(profile["seconds"], 1e-9))
    shares = f"the trainer waits {percent_text(waiting_share(profile))} and the reader {percent_text(idle)}"
    return f"Of an epoch's {seconds_text(profile['seconds'])} {shares}."


def _meaning(profile: Profile) -> str:
    if waiting_share(profile) > profile.get(f"{READER_WAIT}_seconds", 0.0) / max(profile["seconds"], 1e-9):
        return "Making batches ready decides how long an epoch takes."
    return "Computing decides how long an epoch takes: more prefetch or cache would gain little."


def _bars(profile: Profile, *, rank: int | None) -> list[Bar]:
    """Return the trainer's bar and the reader's, labelled."""
    known = sum(profile.get(f"{part}_seconds", 0.0) for part in TRAINER_PARTS)
    whole = {**profile, f"{_OTHER}_seconds": max(0.0, profile["seconds"] - known)}
    behind = "" if rank is None else f" {rank}"
    sides = (("trainer", _TRAINER_LOOKS), ("reader", _READER_LOOKS))
    return [
        (
            f"{side}{behind}",
            [(name, role, shape, whole.get(f"{part}_seconds", 0.0)) for part, name, role, shape in looks],
        )
        for side, looks in sides
    ]


def _table(bars: Sequence[Bar]) -> Table:
    rows = [(label, name, seconds_text(seconds)) for label, parts in bars for name, _, _, seconds in parts if seconds]
    return Table(summary="Seconds per epoch in figures", head=("side", "part", "per epoch"), rows=rows)


def _paint(figure: Figure, *, bars: Sequence[Bar]) -> None:
    axes: Axes = figure.add_subplot()
    plain_axes(axes, x_label="seconds per epoch", y_label="", grid="x")
    for row, (_, parts) in enumerate(bars):
        left = 0.0
        for _, role, shape, seconds in parts:
            axes.barh(
                row,
                seconds,
                left=left,
                height=0.62,
                color=colour(role),
                hatch="////" if shape == "hatch" else None,
                edgecolor=colour("paper"),
                linewidth=0,
            )
            left += seconds
    axes.set_yticks(range(len(bars)), [label for label, _ in bars])
    axes.invert_yaxis()
    axes.margins(x=0.02)
    axes.spines["left"].set_visible(False)
