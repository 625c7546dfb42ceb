"""The addresses of the pages, below `/gnnflow`: a workspace's name, then a path as in the workspace.

/fraud/                                              runs, comparisons, trainings
/fraud/runs/<name>/<run>/report.html                 a report, in a frame
/fraud/runs/<name>/<run>/predictions                 first rows; predictions.parquet is the download
/fraud/artifacts/score/<fingerprint>/predictions     the same of a scoring
/fraud/artifacts/train/<fingerprint>                 learning curves; the page reloads itself while training runs
/fraud/comparisons/<name>/<runs>/comparison.html     an experiment, in a frame
/fraud/registry                                      models and their versions; POST promotes and rolls back
/fraud/registry/<model>/<version>                    a version: metrics, certificate, lineage
/fraud/registry/<model>/scores/<number>.html         the report of a scoring, in a frame
/fraud/sealed/...                                    what the frames show
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from http import HTTPStatus
from itertools import chain
from typing import Annotated, Any
from urllib.parse import quote

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.api_fastapi.logging.decorators import action_logging
from fastapi import Depends, FastAPI, Form, Request, status
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException as AnyHTTPException

from gnnflow import registry
from gnnflow.graph.errors import GnnflowError
from gnnflow.graph.secrets import mask_secrets
from gnnflow.storage.filesystem import within
from gnnflow.storage.run_folder import PREDICTIONS, REPORT
from gnnflow_airflow.pages import contents, models, predictions
from gnnflow_airflow.pages.access import EDIT, READ, Editable, Readable, allows, refuse_unnamed, sign_form
from gnnflow_airflow.pages.contents import COMPARISON, AbsentError
from gnnflow_airflow.pages.views import draw_curves, seal, seal_download, show
from gnnflow_airflow.places import Place, list_places

_log = logging.getLogger(__name__)
_PARQUET = "application/vnd.apache.parquet"
_MOST_FITS = 8
_RELOAD_SECONDS = 5
_MOST_LISTED = 200


def list_workspaces(request: Request, user: GetUserDep) -> Response:
    """Show the workspaces that the user may see."""
    places = [place for place in list_places().values() if allows(request, user, place, READ)]
    return show(request, "places.html.j2", places=places)


def show_workspace(request: Request, place: Readable) -> Response:
    """Show a workspace's runs, comparisons and trainings."""
    return show(
        request,
        "place.html.j2",
        place=place,
        runs=contents.list_rows(place, most=_MOST_LISTED),
        comparisons=contents.list_comparisons(place)[:_MOST_LISTED],
        trainings=contents.list_trainings(place)[:_MOST_LISTED],
        most=_MOST_LISTED,
    )


def show_report(request: Request, place: Readable, name: str, run: str) -> Response:
    """Show a run's report in a frame."""
    contents.find_file(place, contents.find_folder(place, "runs", name, run), REPORT)
    path = f"runs/{name}/{run}"
    links = {"Predictions": f"{path}/{PREDICTIONS}", "Models": "registry"}
    return show(request, "frame.html.j2", place=place, title=name, path=f"{path}/{REPORT}", links=links, reports={})


def send_report(request: Request, place: Readable, name: str, run: str) -> Response:
    """Send a run's report, sealed."""
    return _framed(request, place, contents.read_report(place, contents.find_folder(place, "runs", name, run)))


def show_comparison(request: Request, place: Readable, name: str, runs: str) -> Response:
    """Show the comparison of an experiment in a frame."""
    folder = contents.find_folder(place, "comparisons", name, runs)
    contents.find_file(place, folder, COMPARISON)
    path = f"comparisons/{name}/{runs}/{COMPARISON}"
    reports = {label: f"{run}/{REPORT}" for label, run in contents.list_compared(place, folder)}
    links = {"Models": "registry"}
    return show(request, "frame.html.j2", place=place, title=name, path=path, links=links, reports=reports)


def send_comparison(request: Request, place: Readable, name: str, runs: str) -> Response:
    """Send the comparison of an experiment, sealed."""
    folder = contents.find_folder(place, "comparisons", name, runs)
    return _framed(request, place, contents.read_page(place, folder, COMPARISON))


def show_predictions(request: Request, place: Readable, name: str, run: str) -> Response:
    """Show the first predictions of a run."""
    return _first_rows(request, place, "runs", name, run)


def show_scores(request: Request, place: Readable, fingerprint: str) -> Response:
    """Show the first predictions of a scoring."""
    return _first_rows(request, place, "artifacts", "score", fingerprint)


def _first_rows(request: Request, place: Readable, *names: str) -> Response:
    folder = contents.find_folder(place, *names)
    found = predictions.first_rows(place, folder, contents.predictions_of(place, folder))
    report = f"{'/'.join(names)}/{REPORT}" if names[0] == "runs" else ""
    return show(request, "rows.html.j2", place=place, names=names, found=found, report=report)


def send_predictions(place: Readable, name: str, run: str) -> Response:
    """Send the predictions of a run as one Parquet file."""
    return _parquet(place, "runs", name, run)


def send_scores(place: Readable, fingerprint: str) -> Response:
    """Send the predictions of a scoring as one Parquet file."""
    return _parquet(place, "artifacts", "score", fingerprint)


def _parquet(place: Readable, *names: str) -> Response:
    folder = contents.find_folder(place, *names)
    pieces = predictions.stream_parquet(place, folder, contents.predictions_of(place, folder))
    begun = chain([next(pieces, b"")], pieces)  # what is refused at once is a page that says so
    return seal_download(StreamingResponse(begun, media_type=_PARQUET), "predictions.parquet")


def show_training(request: Request, place: Readable, fingerprint: str) -> Response:
    """Show the learning curves of a training, before it begins too, since the link to them exists by then."""
    found = contents.read_training(place, fingerprint)
    drawn = {
        fit: draw_curves(rows, metric=found.metric, best_epoch=found.best_epoch)
        for fit, rows in list(found.fits.items())[:_MOST_FITS]
    }
    reload = None if found.status == "complete" else _RELOAD_SECONDS
    return show(request, "training.html.j2", place=place, found=found, drawn=drawn, reload=reload)


def show_models(request: Request, place: Readable, user: GetUserDep) -> Response:
    """Show the models with their versions and, to those who may edit, the buttons that move the champion."""
    may_edit = allows(request, user, place, EDIT)
    token = sign_form(user, place) if may_edit else ""
    return show(request, "models.html.j2", place=place, models=models.list_models(place), token=token)


def show_version(request: Request, place: Readable, model: str, version: int) -> Response:
    """Show a version: its metrics, its certificate, what it was made from, and what it scored."""
    found = models.show_version(place, model, version)
    return show(request, "version.html.j2", place=place, found=found)


def show_scoring(request: Request, place: Readable, model: str, page: str) -> Response:
    """Show the report of a scoring in a frame."""
    models.read_scoring(place, model, page)
    path, links = f"registry/{model}/scores/{page}", {"Models": "registry"}
    return show(request, "frame.html.j2", place=place, title=model, path=path, links=links, reports={})


def send_scoring(request: Request, place: Readable, model: str, page: str) -> Response:
    """Send the report of a scoring, sealed."""
    return _framed(request, place, models.read_scoring(place, model, page))


def _framed(request: Request, place: Readable, content: bytes) -> Response:
    """Return a page that a stage wrote to the frame that asks for it; a link in another such page opens it framed."""
    return leave_frame(request, place) if request.headers.get("Sec-Fetch-Dest") == "document" else seal(content)


def leave_frame(request: Request, place: Readable) -> Response:
    """Lead from a link in a framed page, which is relative to that page, to the page it means."""
    base, path = request.scope.get("root_path", ""), request.url.path.partition(f"/{place.name}/sealed/")[2]
    return RedirectResponse(f"{base}/{place.name}/{quote(path)}", status.HTTP_303_SEE_OTHER)


def promote(
    request: Request,
    place: Editable,
    *,
    user: GetUserDep,
    model: str,
    version: Annotated[int, Form()],
    seen: Annotated[int, Form(ge=0)],
) -> Response:
    """Put a version in service. seen: the moves that the page showed, after which the champion may not have moved."""
    models.read_model(place, model)
    refuse_unnamed(user, model, registry.read_approvers(place.uri, model))
    registry.promote(place.uri, model, version, reason=f"promoted in Airflow by {user.get_name()}", seen=seen)
    return _back(request, place)


def roll_back(
    request: Request, place: Editable, user: GetUserDep, model: str, seen: Annotated[int, Form(ge=0)]
) -> Response:
    """Put the former champion back in service. seen: as for `promote`; so a form that is sent twice acts once."""
    models.read_model(place, model)
    registry.rollback(place.uri, model, reason=f"put back in service in Airflow by {user.get_name()}", seen=seen)
    return _back(request, place)


def _back(request: Request, place: Readable) -> Response:
    base = request.scope.get("root_path", "")
    return RedirectResponse(f"{base}/{place.name}/registry", status.HTTP_303_SEE_OTHER)


_RUN = "/{place}/runs/{name}/{run}"
_COMPARED = "/{place}/comparisons/{name}/{runs}/" + COMPARISON
_SCORED = "/{place}/artifacts/score/{fingerprint}"
_SCORING = "/{place}/registry/{model}/scores/{page}"
_FRAMED: dict[str, Callable[..., Response]] = {
    f"{_RUN}/{REPORT}": send_report,
    _COMPARED: send_comparison,
    _SCORING: send_scoring,
    f"{_RUN}/{PREDICTIONS}": leave_frame,
    f"{_SCORED}/{PREDICTIONS}": leave_frame,
}
_READ: dict[str, Callable[..., Response]] = {
    "/": list_workspaces,
    "/{place}/": show_workspace,
    f"{_RUN}/{REPORT}": show_report,
    f"{_RUN}/{PREDICTIONS}": show_predictions,
    f"{_RUN}/{PREDICTIONS}.parquet": send_predictions,
    f"{_SCORED}/{PREDICTIONS}": show_scores,
    f"{_SCORED}/{PREDICTIONS}.parquet": send_scores,
    "/{place}/artifacts/train/{fingerprint}": show_training,
    _COMPARED: show_comparison,
    "/{place}/registry": show_models,
    "/{place}/registry/{model}/{version:int}": show_version,
    _SCORING: show_scoring,
    **{path.replace("/{place}/", "/{place}/sealed/"): page for path, page in _FRAMED.items()},
}
_CHANGE: dict[str, tuple[Callable[..., Response], str]] = {
    "/{place}/registry/{model}/promote": (promote, "gnnflow_promote"),
    "/{place}/registry/{model}/rollback": (roll_back, "gnnflow_rollback"),
}


def make_app() -> FastAPI:
    """Return the application."""
    app = FastAPI(title="gnnflow", openapi_url=None, docs_url=None, redoc_url=None)
    for path, page in _READ.items():
        app.add_api_route(path, _confined(page), methods=["GET"], response_model=None)
    for path, (action, event) in _CHANGE.items():
        # in Airflow's audit log, refused attempts too
        logged = [Depends(action_logging(event))]
        app.add_api_route(path, _confined(action), methods=["POST"], response_model=None, dependencies=logged)
    app.add_exception_handler(AnyHTTPException, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse)
    app.add_exception_handler(AbsentError, _refuse)
    app.add_exception_handler(GnnflowError, _refuse)
    return app


def _confined(page: Callable[..., Response]) -> Callable[..., Response]:
    """Return a page that opens nothing outside of its workspace, whatever links the workspace holds."""

    @wraps(page)
    def call(**values: Any) -> Response:
        place: Place | None = values.get("place")
        with within(place.uri) if place else nullcontext():
            return page(**values)

    return call


def _refuse(request: Request, error: Exception) -> Response:
    """Return the page of an error; who is not signed in is led to Airflow's login and back."""
    code, text = _explain(error)
    if code == status.HTTP_401_UNAUTHORIZED and request.method == "GET":
        login: Any = get_auth_manager().get_url_login(next_url=str(request.url))
        return RedirectResponse(login, status.HTTP_302_FOUND)
    return show(request, "refusal.html.j2", status=code, code=code, text=text)


def _explain(error: Exception) -> tuple[int, str]:
    if isinstance(error, AnyHTTPException):
        return error.status_code, str(error.detail)
    if isinstance(error, GnnflowError):
        _log.warning("a page was refused: %s", mask_secrets(str(error)))
        return status.HTTP_409_CONFLICT, mask_secrets(str(error))
    if isinstance(error, AbsentError):
        return status.HTTP_404_NOT_FOUND, "There is no such page, or its run was deleted"
    return HTTPStatus.UNPROCESSABLE_ENTITY, "The form lacks a value, or one is of another kind"
