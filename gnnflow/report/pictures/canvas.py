"""Draws with matplotlib a small inline SVG in the page's font and colours, always with the same bytes.

matplotlib runs without pyplot, with our own style whatever the user's matplotlibrc says. Its output is then trimmed:
text stays text in the page's font, ids are unique to their picture, numbers keep two decimals, sizes and metadata go.

matplotlib writes fixed colours, but a page has a light, a dark and a printed look. So every picture is drawn in
placeholder colours, one hexadecimal value per role, and `themed` replaces each with the stylesheet's variable of that
role.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROLES = (
    "ink",  # text that matters
    "muted",  # axis labels, notes
    "line",  # axes
    "grid",
    "paper",  # the background
    "accent",  # the model, computed values
    "warm",  # hubs, the other series, values to notice
    "quiet",  # the baseline, reused work
    "onaccent",  # text on a strong accent
    *(f"class{index}" for index in range(10)),
    *(f"ramp{index}" for index in range(5)),
)
NUM_CLASS_COLOURS = 10
NUM_RAMP_COLOURS = 5
_HEX = {role: f"#0d5e{index:02x}" for index, role in enumerate(_ROLES)}
_BY_HEX = {value: role for role, value in _HEX.items()}
_PLACEHOLDER = re.compile(r"#0d5e[0-9a-f]{2}")


def colour(role: str) -> str:
    """Return the placeholder colour of a role."""
    return _HEX[role]


def themed(svg: str) -> str:
    """Return the SVG with the stylesheet's variables instead of placeholders."""
    return _PLACEHOLDER.sub(lambda found: f"var(--{_BY_HEX[found.group()]})", svg)


HALF_WIDTH = 410.0  # in the picture's units: half of the page, and all of it
FULL_WIDTH = 860.0
_UNITS_PER_INCH = 72.0


@dataclass(frozen=True)
class Swatch:
    """One entry of a picture's key: colour role, shape (dot, line, dash, area, hatch) and words."""

    role: str
    shape: str
    label: str


@dataclass(frozen=True)
class Table:
    """The figures behind a picture, for readers who cannot see it or prefer figures."""

    summary: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Picture:
    """A titled SVG with its words; where svg is empty, `missing` has the reason."""

    key: str
    title: str
    alt: str = ""
    caption: str = ""
    svg: str = ""
    missing: str = ""
    legend: Sequence[Swatch] = ()
    table: Table | None = None
    wide: bool = False


def draw(key: str, painter: Callable[[Figure], None], *, width: float, height: float) -> str:
    """Let `painter` fill a figure of width x height units and return it as inline SVG.

    The same painter gives the same bytes on the same matplotlib.
    """
    from matplotlib import style  # reports are rare; importing matplotlib takes a second
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    buffer = io.StringIO()
    with style.context(["default", _style(key)]), warnings.catch_warnings():
        # Text is measured in matplotlib's own font but shown in the reader's, which has the missing letters.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing", category=UserWarning)
        figure = Figure(figsize=(width / _UNITS_PER_INCH, height / _UNITS_PER_INCH), layout="constrained")
        painter(figure)
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        # Not savefig, which draws every figure twice.
        FigureCanvasSVG(figure).print_svg(buffer, metadata=nothing)  # type: ignore[no-untyped-call]
    return _trim(buffer.getvalue(), key=key)


def plain_axes(axes: Axes, *, x_label: str, y_label: str, grid: Literal["", "x", "y", "both"] = "y") -> None:
    """Label the axes and keep only the two lines with ticks and a faint grid."""
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if grid:
        axes.grid(visible=True, axis=grid, which="major")
    axes.set_axisbelow(True)


def dots(axes: Axes, points: npt.NDArray[Any], *, role: str, size: float, alpha: float = 1.0) -> None:
    """Draw points [n, 2] as one path of round dots: a tenth of the bytes of n markers."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    codes = np.tile([Path.MOVETO, Path.LINETO], len(points)).astype(Path.code_type)
    path = Path(np.repeat(np.asarray(points, dtype=float), 2, axis=0), codes)
    path.should_simplify = False
    axes.add_patch(PathPatch(path, fill=False, edgecolor=colour(role), linewidth=size, capstyle="round", alpha=alpha))
    axes.update_datalim(points)


def _style(key: str) -> dict[str, Any]:
    return {
        "svg.fonttype": "none",
        "svg.hashsalt": key,
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "text.parse_math": False,  # a class may be called $x$
        "font.family": "DejaVu Sans",
        "font.size": 9.5,
        "text.color": colour("ink"),
        "axes.labelcolor": colour("muted"),
        "axes.labelsize": 9.5,
        "axes.labelpad": 5,
        "axes.edgecolor": colour("line"),
        "axes.linewidth": 0.8,
        "axes.titlesize": 9,
        "axes.titlelocation": "left",
        "xtick.color": colour("line"),
        "ytick.color": colour("line"),
        "xtick.labelcolor": colour("muted"),
        "ytick.labelcolor": colour("muted"),
        "xtick.major.size": 3,
        "ytick.major.size": 0,
        "xtick.minor.size": 0,
        "ytick.minor.size": 0,
        "grid.color": colour("grid"),
        "grid.linewidth": 0.7,
        "hatch.linewidth": 1.2,
        "lines.linewidth": 1.8,
        "lines.solid_capstyle": "round",
        "lines.solid_joinstyle": "round",
    }


def _trim(svg: str, *, key: str) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<(metadata|style)\b.*?</\1>", "", svg, flags=re.DOTALL)
    view_box = re.search(r'viewBox="[^"]*"', svg)
    assert view_box is not None
    root = f'<svg {view_box.group()} aria-hidden="true" focusable="false">'
    svg = re.sub(r"<svg[^>]*>", root, svg, count=1)
    used = frozenset(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
    # Only tags change: the text between them is the user's.
    svg = re.sub(r"<[^>]*>", lambda tag: _trim_tag(tag.group(), key=key, used=used), svg)
    return re.sub(r">\s+<", "><", svg).replace("<defs></defs>", "").strip()


def _trim_tag(tag: str, *, key: str, used: frozenset[str]) -> str:
    """Shorten one tag, theme its colours and make its ids unique to the picture (a page holds many)."""
    tag = tag.replace("xlink:href", "href")
    tag = re.sub(r' id="([^"]*)"', lambda i: f' id="{key}-{i.group(1)}"' if i.group(1) in used else "", tag)
    tag = re.sub(r'(href="#|url\(#)', rf"\g<1>{key}-", tag)
    tag = re.sub(r"font-family: [^;\"]*(; )?", "", tag)
    tag = re.sub(r"font: (?:(\w+) )?([\d.]+px)[^;\"]*", _font, tag)  # how matplotlib before 3.11 writes it
    tag = re.sub(r"-?\d+\.\d{3,}", _two_decimals, tag)
    tag = re.sub(r' transform="rotate\(-?0 [^"]*"', "", tag)
    tag = re.sub(r"\s*\n\s*", " ", tag)
    return themed(re.sub(r' fill="(#\w+)"', r' style="fill: \1"', tag))


def _font(found: re.Match[str]) -> str:
    weight = f"font-weight: {found.group(1)}; " if found.group(1) else ""
    return f"{weight}font-size: {found.group(2)}"


def _two_decimals(found: re.Match[str]) -> str:
    text = f"{float(found.group()):.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
