"""The common parts of benchmarks: options, forms in turns, cells in other processes, and one Markdown table.

A benchmark is a script with a `BENCH` and `run(BENCH)` at its end. `python benchmarks/harness.py` lists them all, each
with the first line of its docstring. Besides its own options, each has

    --small        sizes that take seconds, to test the benchmark
    --json FILE    the rows, options, versions and load as JSON as well
    --help         the docstring and the options

A benchmark measures within one run: forms and peers take turns, so that other programs disturb all of them alike. A
peer that is not installed here runs in the interpreter that `--dgl PYTHON` or `--pyg PYTHON` names. So this module
imports nothing of gnnflow.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
Chosen = argparse.Namespace
Found = dict[str, Any]


@dataclass(frozen=True)
class Option:
    """An option of a benchmark: its default, which gives the type, and its text in --help."""

    default: Any
    help: str = ""
    choices: tuple[str, ...] | None = None


DATA = Option(os.environ.get("GNNFLOW_DATA", "data"), "folder of the public graphs")
FOLDER = Option("", "folder that keeps the generated graph and its artifacts; a temporary one by default")
DGL = Option("", "interpreter that has DGL")
PYG = Option(sys.executable if importlib.util.find_spec("torch_geometric") else "", "interpreter that has PyG")


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: the columns of its table, and a function that yields its rows.

    options: by name, with _ in place of -; an Option or its default. small: their values under --small. cells:
    functions that `cell` runs in a separate process. needs: modules, "cuda", or "data/GRAPH" of the public graphs.
    """

    columns: Sequence[str]
    rows: Callable[[Chosen], Iterable[Sequence[Any]]]
    options: Mapping[str, Any] = field(default_factory=dict)
    small: Mapping[str, Any] = field(default_factory=dict)
    cells: Mapping[str, Callable[[Chosen], Found]] = field(default_factory=dict)
    needs: Sequence[str] = ()


class Spread(tuple[float, ...]):
    """Values of several seeds or repeats, which a table shows as mean +- standard deviation."""

    __slots__ = ()

    def __str__(self) -> str:
        """Return the mean with the deviation, if there is more than one value."""
        deviation = f" +- {statistics.stdev(self):.4f}" if len(self) > 1 else ""
        return f"{statistics.mean(self):.4f}{deviation}"


def run(bench: Benchmark) -> None:
    """Measure by the command line, and print the table; end with 1 if one of its cells is FAIL."""
    chosen = arguments(bench)
    if chosen.cell:
        print(json.dumps(bench.cells[chosen.cell](chosen)))
        return
    if absent := missing(bench.needs, data=getattr(chosen, "data", "")):
        sys.exit(f"this benchmark needs {', '.join(absent)}")
    print(line_of(bench.columns) + "\n" + "|---" * len(bench.columns) + "|", flush=True)
    rows = []
    for row in bench.rows(chosen):
        rows.append(list(row))
        print(line_of(map(text_of, row)), flush=True)
    load, cores = os.getloadavg()[0], os.cpu_count()
    tell(f"{cores} cores, load {load:.1f}")
    if chosen.json:
        about = {"bench": _script().stem, "versions": versions(), "cores": cores, "load": load}
        given = {name: str(value) for name, value in vars(chosen).items() if name in bench.options}
        found = {**about, "options": given, "columns": list(bench.columns), "rows": rows}
        Path(chosen.json).write_text(json.dumps(found))
    if any("FAIL" in row for row in rows):
        sys.exit(1)


def arguments(bench: Benchmark) -> Chosen:
    """Return the values of the options; --small changes the defaults."""
    doc = sys.modules["__main__"].__doc__
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, given in bench.options.items():
        option = given if isinstance(given, Option) else Option(given)
        flag, text = f"--{name.replace('_', '-')}", option.help.replace("%", "%%")
        if option.default is False:
            parser.add_argument(flag, action="store_true", help=text)
        else:
            kind = type(option.default)
            parser.add_argument(flag, type=kind, default=option.default, help=text, choices=option.choices)
    parser.add_argument("--small", action="store_true", help="sizes that take seconds")
    parser.add_argument("--json", default="", help="file for the rows as JSON")
    parser.add_argument("--cell", default="", help=argparse.SUPPRESS)
    parser.add_argument("--given", default="{}", help=argparse.SUPPRESS)
    if parser.parse_known_args()[0].small:
        parser.set_defaults(**bench.small)
    chosen = parser.parse_args()
    vars(chosen).update(json.loads(chosen.given))
    return chosen


def missing(needs: Sequence[str], *, data: str) -> list[str]:
    """Return the needs that are missing here."""
    return [need for need in needs if not _is_there(need, data)]


def _is_there(need: str, data: str) -> bool:
    if need == "cuda":
        import torch

        return torch.cuda.is_available()
    if need.startswith("data/"):
        return (Path(data) / need.removeprefix("data/")).is_dir()
    return importlib.util.find_spec(need) is not None


def cell(
    chosen: Chosen, name: str, *, python: str = "", threads: int = 0, limit: float | None = None, **given: Any
) -> Any:
    """Return the result of one of the benchmark's cells in a separate process, with other or more values given.

    python: the interpreter, of this process by default. threads: of OpenMP; limit: seconds until it is stopped.
    """
    words = [python or sys.executable, str(_script()), "--cell", name, "--given", json.dumps(_plain(chosen) | given)]
    return _json_of(words, threads=threads, limit=limit)


def peer(python: str, name: str, *, threads: int, **given: Any) -> Any:
    """Return the result of a function of `peers.py` in the interpreter of the peer, with this many threads."""
    words = [python, str(HERE / "peers.py"), name, json.dumps({"threads": threads, **given})]
    return _json_of(words, threads=threads)


def _plain(chosen: Chosen) -> Found:
    return {name: value for name, value in vars(chosen).items() if name not in {"cell", "given", "json", "small"}}


def _json_of(words: Sequence[str], *, threads: int, limit: float | None = None) -> Any:
    environment = dict(os.environ)
    if threads:
        environment |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    ran = subprocess.run(words, stdout=subprocess.PIPE, text=True, env=environment, timeout=limit, check=False)  # noqa: S603
    if ran.returncode:
        sys.exit(f"{' '.join(words[1:4])} ended with {ran.returncode}")
    return json.loads(ran.stdout.splitlines()[-1])


def _script() -> Path:
    return Path(sys.argv[0]).resolve()


def in_turns(
    forms: Mapping[str, Callable[[], object]],
    *,
    repeats: int,
    warmup: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Return the seconds of each form, run in turns; the first turns warm up and are not counted."""
    times: dict[str, list[float]] = {name: [] for name in forms}
    for turn in range(warmup + repeats):
        for name, form in forms.items():
            begin = clock()
            form()
            if turn >= warmup:
                times[name].append(clock() - begin)
    return times


def seconds_of(work: Callable[[], object], *, repeats: int, warmup: int = 1) -> list[float]:
    """Return the seconds of each run after those that warm up."""
    return in_turns({"": work}, repeats=repeats, warmup=warmup)[""]


@contextmanager
def folder_of(kept: str) -> Iterator[Path]:
    """Yield the folder, made if it is missing; without one, a folder that is removed afterwards."""
    if kept:
        Path(kept).mkdir(parents=True, exist_ok=True)
        yield Path(kept)
        return
    with tempfile.TemporaryDirectory(prefix="gnnflow-bench-") as folder:
        yield Path(folder)


def peak_mib() -> float:
    """Return the peak memory of this process in MiB (getrusage would count its parent too)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def numbers(text: str) -> list[int]:
    """Return the numbers of a list such as 1,2,4."""
    return [int(each) for each in text.split(",")]


def tell(text: str) -> None:
    """Report progress on stderr."""
    print(text, file=sys.stderr, flush=True)


def line_of(cells: Iterable[str]) -> str:
    """Return a line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def text_of(value: Any) -> str:
    """Return a value as a cell of a table: floats with three digits, None as nothing."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int) or abs(value) >= 100:  # noqa: PLR2004 - three digits and more
        return f"{value:,.0f}"
    return f"{value:.3g}"


def versions() -> dict[str, str]:
    """Return the versions of Python and of the compared libraries."""
    found = {"python": platform.python_version()}
    for name in ("gnnflow", "torch", "torch_geometric", "dgl"):
        if importlib.util.find_spec(name):
            found[name] = metadata.version(name)
    return found


COLOURS = ("#2f5d8a", "#c4622d", "#4f8a5b", "#7a5ea8", "#8a8a8a", "#b03a5b")
MARKERS = (".", "x", "^")
PLOT = Option("", "PNG file for a plot")


def draw_lines(
    path: str,
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    x_label: str,
    y_label: str,
    logarithmic: str = "",
    dashed: str = "",
) -> None:
    """Write a PNG of lines by name, whatever the user's matplotlibrc says.

    logarithmic: the axes with powers of two, as "x" or "xy"; dashed: the line to compare with. If there are more lines
    than colours, they differ by markers, and the legend is outside of the plot.
    """
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    many = len(lines) > len(COLOURS)
    with style.context(["default", {"font.size": 9.5, "axes.edgecolor": "#999999"}]):
        figure = Figure(figsize=(9.6, 4.4) if many else (6.4, 4.0), dpi=110, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        for number, (name, (x, y)) in enumerate(lines.items()):
            colour, shape = ("#555555", "--") if name == dashed else (COLOURS[number % len(COLOURS)], "-")
            marker = "" if name == dashed else MARKERS[number // len(COLOURS) % len(MARKERS)]
            axes.plot(x, y, shape, color=colour, label=name, linewidth=1.5, marker=marker, markersize=5)
        for each in logarithmic:
            getattr(axes, f"set_{each}scale")("log", base=2)
            getattr(axes, f"{each}axis").set_major_formatter("{x:g}")
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.grid(visible=True, color="#e4e4e4", linewidth=0.7)
        axes.set_axisbelow(True)
        if many:
            figure.legend(frameon=False, loc="outside right upper", fontsize=8)
        else:
            axes.legend(frameon=False)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Software": None})


def names() -> dict[str, str]:
    """Return the benchmarks of this folder, each with the first line of its docstring."""
    found = {}
    for file in sorted(HERE.glob("*.py")):
        text = file.read_text()
        if "\nBENCH = " in text:
            found[file.stem] = str(ast.get_docstring(ast.parse(text))).splitlines()[0]
    return found


if __name__ == "__main__":
    for each, first_line in names().items():
        print(f"{each:20} {first_line}")
