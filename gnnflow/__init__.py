"""gnnflow trains and serves graph neural networks on graphs that do not fit in one machine's memory.

    import gnnflow as gf

    run = gf.run("fraud.yaml", nodes=accounts, edges=payments)
    run.metrics, run.predictions.to_pandas(), run.report

docs/python.md shows every function; they load what they need on their first use. docs/architecture.md lists the five
files to read first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gnnflow.api.calls import (
        audit,
        check,
        compare,
        explain,
        load_model,
        neighborhoods,
        plan,
        publish,
        recommend,
        run,
        runs,
        score,
        sweep,
    )
    from gnnflow.api.results import Recommended, Run, Scores
    from gnnflow.config import Config
    from gnnflow.graph.errors import GnnflowError

__version__ = "0.1.0"
__all__ = [
    "Config",
    "GnnflowError",
    "Recommended",
    "Run",
    "Scores",
    "audit",
    "check",
    "compare",
    "explain",
    "load_model",
    "neighborhoods",
    "plan",
    "publish",
    "recommend",
    "run",
    "runs",
    "score",
    "sweep",
]
_ELSEWHERE = {
    "Config": "gnnflow.config",
    "GnnflowError": "gnnflow.graph.errors",
    "Recommended": "gnnflow.api.results",
    "Run": "gnnflow.api.results",
    "Scores": "gnnflow.api.results",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_ELSEWHERE.get(name, "gnnflow.api.calls")), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
