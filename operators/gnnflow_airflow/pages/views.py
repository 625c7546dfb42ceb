"""Templates and headers of the pages.

A file that a stage wrote is sealed: the browser gives it an origin without cookies, runs no script but the report's
own, and lets it load and send nothing. Its links open other windows, since requests from its frame come without the
user's cookie. Our own pages have no script at all, and text in them is escaped.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fastapi.responses import HTMLResponse, Response

from gnnflow.cli.run_table import age_text
from gnnflow.report.pictures import Picture, epoch_curves
from gnnflow.report.render import environment, policy_hash, template_source

if TYPE_CHECKING:
    from fastapi import Request
    from jinja2 import Environment

_SAFE = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Cache-Control": "no-store"}
_OWN = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'self'"
)
SANDBOX = "allow-scripts allow-popups allow-popups-to-escape-sandbox"
_SEALED = (
    f"sandbox {SANDBOX}; default-src 'none'; style-src 'unsafe-inline'; script-src '{{script}}'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
_DRAWING = threading.Lock()  # matplotlib's style is one for all threads


def show(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Return one of our pages."""
    held = _templates().get_template(template)
    base = str(request.scope.get("root_path", ""))
    content = held.render(base=base, style=template_source("report.css"), sandbox=SANDBOX, **values)
    return HTMLResponse(content, status_code=status, headers={**_SAFE, "Content-Security-Policy": _OWN})


def seal(content: bytes) -> HTMLResponse:
    """Return a page that a stage wrote."""
    policy = _SEALED.format(script=policy_hash(template_source("copy.js")))
    return HTMLResponse(content, headers={**_SAFE, "Content-Security-Policy": policy})


def seal_download(response: Response, name: str) -> Response:
    """Return a response that a browser saves as a file; name: of letters, digits, dots, dashes and underscores."""
    response.headers.update({**_SAFE, "Content-Security-Policy": "sandbox; default-src 'none'"})
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def draw_curves(rows: Sequence[Mapping[str, float]], *, metric: str, best_epoch: int | None) -> tuple[Picture, ...]:
    """Return the learning curves of a fit, one picture at a time."""
    with _DRAWING:
        return epoch_curves(rows, metric=metric, best_epoch=best_epoch)


@lru_cache(maxsize=1)
def _templates() -> Environment:
    """Return our templates, and the report's, with its filters and its escaping."""
    from jinja2 import ChoiceLoader, PackageLoader

    reports = environment()
    assert reports.loader is not None
    made = reports.overlay(loader=ChoiceLoader([PackageLoader("gnnflow_airflow.pages"), reports.loader]))
    made.filters = {**reports.filters, "age": age_text}
    return made
