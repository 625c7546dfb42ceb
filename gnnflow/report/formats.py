"""The form of figures on the page and its axes: counts, sizes, times and scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gnnflow.graph.labels import BOUNDS

_METRIC_NAMES = {
    "accuracy": "accuracy",
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "roc_auc": "ROC AUC",
    "average_precision": "average precision",
    "brier": "Brier score",
    "f1": "F1",
    "loss": "loss",
    "mae": "MAE",
    "mrr": "MRR",
    "mse": "MSE",
    "rmse": "RMSE",
    "r2": "R²",
    "items_at_10": "distinct items among the first 10",
}
_TURNS = dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)))  # Unicode's controls of direction
_MINUTE = 60
_HOUR = 3600
_THOUSAND = 1000
_UNITS = ("", "k", "M", "B", "T")
_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_SMALLEST = 1e-3
_LARGEST = 1e7


def count_text(value: float) -> str:
    """1234567 -> '1,234,567'."""
    return f"{value:,.0f}" if math.isfinite(value) else "n/a"


def short_count(value: float) -> str:
    """1234567 -> '1.2M'; made for axes and tiles."""
    size, unit = _scaled(value, _UNITS)
    return f"{_three_digits(size)}{unit}"


def bytes_text(value: float) -> str:
    """12_400_000 -> '12.4 MB' (decimal units)."""
    size, unit = _scaled(value, _BYTE_UNITS)
    return f"{_three_digits(size)} {unit}"


def seconds_text(value: float) -> str:
    """Seconds in the unit a person would choose: '8 ms', '12.3 s', '4 min 05 s', '2 h 13 min'."""
    if not math.isfinite(value):
        return "n/a"
    if value < 1:
        return f"{value * _THOUSAND:.0f} ms"
    if value < _MINUTE:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02d} s"
    return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02d} min"


def score_text(value: float) -> str:
    """Return a metric with three decimals, or more where it would round to 1; large ones in whole numbers."""
    if not math.isfinite(value):
        return "n/a"
    if _THOUSAND <= abs(value) < _LARGEST:
        return f"{value:,.0f}"
    if abs(value) >= _LARGEST or (value != 0 and abs(value) < _SMALLEST):
        return f"{value:.3g}"
    near_one = abs(value) < 1 and f"{abs(value):.3f}" == "1.000"
    return f"{value:.5f}" if near_one else f"{value:.3f}"


def score_cell(metrics: Mapping[str, float], key: str) -> str:
    """Return a score with its interval as a cell of a table; empty where it was not measured."""
    if key not in metrics:
        return ""
    value, interval = metrics[key], interval_text(metrics, key)
    text = count_text(value) if isinstance(value, int) else score_text(value)
    return f"{text} ({interval})" if interval else text


def interval_text(metrics: Mapping[str, float], key: str) -> str:
    """Return a metric's confidence interval in words; empty where it has none."""
    bounds = [metrics[f"{key}{side}"] for side in BOUNDS if f"{key}{side}" in metrics]
    return " to ".join(map(score_text, bounds)) if len(bounds) == len(BOUNDS) else ""


def signed_text(value: float) -> str:
    """Return a difference between two metrics, always with its sign."""
    if not math.isfinite(value):
        return "n/a"
    sign = "\N{MINUS SIGN}" if value < 0 else "+"
    return f"{sign}{score_text(abs(value))}"


def ratio_text(value: float) -> str:
    """Return a ratio as a factor: 3.21 is 3.2 times."""
    return f"{_three_digits(value)}\N{MULTIPLICATION SIGN}"


def percent_text(share: float) -> str:
    """0.4213 -> '42 %'; small shares keep one digit."""
    percent = share * 100
    return f"{percent:.0f} %" if percent >= 10 or percent == 0 else f"{percent:.1f} %"  # noqa: PLR2004 two digits


def metric_name(key: str) -> str:
    """'test.micro_f1' -> 'test micro-F1'."""
    return " ".join(_METRIC_NAMES.get(part, part.replace("_", " ")) for part in key.split(".") if part)


def sentence(text: str) -> str:
    """Return the text with a capital first letter."""
    return text[:1].upper() + text[1:]


def _scaled(value: float, units: tuple[str, ...]) -> tuple[float, str]:
    size, step = float(value), 0
    while abs(size) >= _THOUSAND - 0.5 and step < len(units) - 1:
        size, step = size / _THOUSAND, step + 1
    return size, units[step]


def _three_digits(value: float) -> str:
    if not math.isfinite(value):
        return "n/a"
    digits = 0 if abs(value) >= 100 else 1  # noqa: PLR2004 three digits in all
    return f"{value:,.{digits}f}".removesuffix(".0")


def class_name(names: Sequence[object], index: int) -> str:
    """Return the name of a class without Unicode's controls of direction, or its number."""
    name = str(names[index]) if 0 <= index < len(names) else ""
    return name.translate(_TURNS) or str(index)
