"""The chart, its example values and what Helm makes of them; skipped where Helm's library is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "helm" / "gnnflow"

WITHOUT_HELM = "Helm's library needs Python 3.12: run `make test-helm`"

# Each is what a user would install: files that are merged in this order over the chart's own values.
SETS = {
    "defaults": (),
    "laptop": ("laptop",),
    "eks": ("eks",),
    "gpu": ("gpu",),
    "eks with gpu": ("eks", "gpu"),
}


def merged(*names: str) -> dict[str, Any]:
    """Return example values merged as `helm -f one -f two` does."""
    values: dict[str, Any] = {}
    for name in names:
        values = _over(values, yaml.safe_load((CHART / "examples" / f"{name}.yaml").read_text()))
    return values


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = {key: _over(below[key], above[key]) for key in below.keys() & above.keys() if isinstance(above[key], dict)}
    return {**below, **above, **both}


@pytest.fixture(scope="session")
def render() -> Callable[..., Any]:
    """Render the chart: `render(values)`."""
    pytest.importorskip("helm_sdkpy", reason=WITHOUT_HELM)
    from tests.helm import engine

    def chart(values: Mapping[str, Any], **named: Any) -> Any:
        return engine.render(named.pop("chart", CHART), values, **named)

    chart({})  # Go's runtime opens what it keeps once, when Helm is first asked
    return chart


@pytest.fixture(scope="session")
def rendered_sets(render) -> dict[str, Any]:
    """Every set of values, rendered once.

    Airflow's own chart is not in the repository, so what these hold of Airflow is what our chart makes for it.
    """
    return {name: render(merged(*files)) for name, files in SETS.items()}


@pytest.fixture(params=SETS)
def rendered(request, rendered_sets):
    """One set of values, rendered."""
    return rendered_sets[request.param]
