"""Tables from which configs are drafted, and the run of a draft."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from gnnflow.config import load_config
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext

ROWS = 60


def write(folder: Path, name: str, columns: dict[str, Sequence[Any]]) -> str:
    """Write a CSV file and return its path."""
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path = folder / f"{name}.csv"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def ids_of(letter: str, rows: int = ROWS) -> list[str]:
    """Return the ids of rows: a letter and a number."""
    return [f"{letter}{number:03d}" for number in range(rows)]


def write_accounts(folder: Path, **more: Sequence[Any]) -> str:
    """Write a table of accounts with labels, and return its path. more: other columns, or other values of these."""
    columns: dict[str, Sequence[Any]] = {
        "account_id": ids_of("A"),
        "country": ["DE", "FR", "US"] * (ROWS // 3),
        "age": ["" if number % 7 == 0 else 20 + number for number in range(ROWS)],
        "opened": [f"2021-01-{1 + number % 28:02d}" for number in range(ROWS)],
        "owner": [f"name {number}" for number in range(ROWS)],
        "is_fraud": [("yes", "no", "no", "no", "")[number % 5] for number in range(ROWS)],
    }
    return write(folder, "accounts", columns | more)


def write_payments(folder: Path) -> str:
    """Write a table of payments between the accounts, and return its path."""
    ids = ids_of("A")
    columns = {"payment_id": range(ROWS), "from_account": ids, "to_account": ids[7:] + ids[:7], "amount": range(ROWS)}
    return write(folder, "payments", columns)


def content_of(text: str) -> dict[str, Any]:
    """Return what a drafted config says."""
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def run_draft(text: str, folder: Path) -> dict[str, float]:
    """Run a drafted config for two epochs."""
    overrides = ("train.epochs=2", "train.baselines=none", "infer.parity_samples=4", "cluster={kind: synchronous}")
    config = load_config(text, workspace=str(folder / "work"), overrides=overrides)
    return pipeline.run(StageContext.of(config)).metrics
