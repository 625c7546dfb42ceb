"""The parts of an epoch of the trainer and its reader, which show the side that waits.

For global-batch training, whose batch is made once, it shows the trainer and the stages of its layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gnnflow.graph.run_facts import READER_PARTS, READER_WAIT, STAGE_PARTS, TRAINER_PARTS, has_reader, has_stages
from gnnflow.report.formats import percent_text, seconds_text
from gnnflow.report.inputs import ReportInputs
from gnnflow.report.pictures.canvas import FULL_WIDTH, Picture, Swatch, Table, colour, draw, plain_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Profile = Mapping[str, float]

Part = tuple[str, str, str, float]
"""Name, colour, shape and seconds."""
Bar = tuple[str, list[Part]]

MOST_WAITING = 0.2  # share of an epoch for which the trainer waits for its reader
_OF_READER = (*READER_PARTS, READER_WAIT)
_BAR_HEIGHT = 24.0
_AXIS_HEIGHT = 50.0
_MOST_RANKS = 8
_OTHER, _REST = "other", "rest"
# (part, name, colour, shape); waiting looks the same on both sides
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
_STAGE_LOOKS = (
    ("transform", "NN-Transform", "class3", "area"),
    ("gather_sum", "Gather and Sum", "class5", "area"),
    ("mirrors", "waiting for mirrors", "quiet", "hatch"),
    ("reduce", "Reduce", "class6", "area"),
    ("apply", "NN-Apply", "class7", "area"),
    (_REST, "input, head and loss", "grid", "area"),
)


def pipeline_bars(inputs: ReportInputs) -> Picture:
    """Return the seconds per epoch of the trainer and its reader, for the ranks that wait longest."""
    title = "Which side of training waits"
    profiles = profiles_of(inputs)
    if not profiles:
        return Picture(key="pipeline", title=title, missing="Training recorded no profile of its epochs.", wide=True)
    order = sorted(range(len(profiles)), key=lambda rank: -waiting_share(profiles[rank]))
    shown = sorted(order[:_MOST_RANKS])
    bars = [bar for rank in shown for bar in _bars(profiles[rank], rank=rank if len(profiles) > 1 else None)]
    used = {part[:3] for _, parts in bars for part in parts if part[3] > 0}
    looks = [look[1:] for look in (*_TRAINER_LOOKS, *_READER_LOOKS[:-1], *_STAGE_LOOKS) if look[1:] in used]
    worst = profiles[order[0]]
    said = f"{waiting_text(worst)} {_meaning(worst, streamed=inputs.streamed)}"
    more = f" Of {len(profiles)} ranks these {len(shown)} wait longest." if len(profiles) > len(shown) else ""
    height = _AXIS_HEIGHT + _BAR_HEIGHT * len(bars)
    return Picture(
        key="pipeline",
        title=title,
        alt=f"Stacked bars of one epoch's seconds. {said}",
        caption=f"{said}{more} {_epochs_text(inputs, worst)}",
        svg=draw("pipeline", partial(_paint, bars=bars), width=FULL_WIDTH, height=height),
        legend=[Swatch(role, shape, name) for name, role, shape in looks],
        table=_table(bars),
        wide=True,
    )


def profiles_of(inputs: ReportInputs) -> list[Profile]:
    """Return the ranks' profiles, without a reader where the graph was read from files."""
    rows = [row for row in inputs.profiles if row.get("seconds", 0.0) > 0]
    if not inputs.streamed:
        return rows
    return [{key: row[key] for key in row if key.removesuffix("_seconds") not in _OF_READER} for row in rows]


def _epochs_text(inputs: ReportInputs, profile: Profile) -> str:
    """Return the epochs of a profile in words, and the extra work of the first."""
    if has_stages(profile):
        more = "plans the exchange"
    elif inputs.streamed:
        more = "writes those files"
    else:
        more = "checks the files" if has_reader(profile) else "makes the batches"
    if len(inputs.curves) == 1:
        return f"It is the only epoch, which also {more}."
    return f"Means of the epochs after the first, which also {more}."


def waiting_share(profile: Profile) -> float:
    """Return the share of an epoch that the trainer waits for a batch, or layers for other ranks."""
    waited = profile.get(f"{TRAINER_PARTS[0]}_seconds", 0.0) + profile.get("mirrors_seconds", 0.0)
    return waited / max(profile["seconds"], 1e-9)


def idle_share(profile: Profile) -> float:
    """Return the share of an epoch that the reader waits."""
    return min(1.0, profile.get(f"{READER_WAIT}_seconds", 0.0) / max(profile["seconds"], 1e-9))


def trainer_waits(profile: Profile) -> bool:
    """Return whether faster batches would make an epoch much shorter."""
    return has_reader(profile) and not has_stages(profile) and waiting_share(profile) >= MOST_WAITING


def waiting_text(profile: Profile) -> str:
    """Return in words the shares of an epoch that the two sides wait, or ranks for each other."""
    if has_stages(profile):
        summed = percent_text(profile.get("exchange_seconds", 0.0) / max(profile["seconds"], 1e-9))
        shares = f"layers wait {percent_text(waiting_share(profile))} for rows of other ranks and {summed} goes"
        return f"Of an epoch's {seconds_text(profile['seconds'])} {shares} to the sum of gradients."
    if not has_reader(profile):
        return f"An epoch takes {seconds_text(profile['seconds'])}."
    idle = percent_text(idle_share(profile))
    shares = f"training waits {percent_text(waiting_share(profile))} for batches, and batches wait {idle} for training"
    return f"Of an epoch's {seconds_text(profile['seconds'])} {shares}."


def _meaning(profile: Profile, *, streamed: bool) -> str:
    if has_stages(profile):
        return "A partition with fewer mirrors shortens the one, balanced partitions both."
    if streamed:
        return "Its one batch is the graph, which is read from files during the computation."
    if not has_reader(profile):
        return "Its batches are kept in memory, so none had to be prepared."
    if waiting_share(profile) > idle_share(profile):
        return "The preparation of batches limits the speed."
    if trainer_waits(profile):
        return "Batches are mostly prepared and computed in turn, not at once."
    return "Computation limits the speed: more prefetch or cache would gain little."


def _bars(profile: Profile, *, rank: int | None) -> list[Bar]:
    """Return the trainer's bar, and the reader's or the bar of its layers' stages, with labels."""

    def seconds(parts: Iterable[str]) -> float:
        return sum(profile.get(f"{part}_seconds", 0.0) for part in parts)

    whole = {
        **profile,
        f"{_OTHER}_seconds": max(0.0, profile["seconds"] - seconds(TRAINER_PARTS)),
        f"{_REST}_seconds": max(0.0, seconds(("forward", "backward")) - seconds(STAGE_PARTS)),
    }
    behind = "" if rank is None else f" {rank}"
    second = ("stages", _STAGE_LOOKS) if has_stages(profile) else ("reader", _READER_LOOKS)
    sides = [("trainer", _TRAINER_LOOKS), *[second] * (has_stages(profile) or has_reader(profile))]
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
