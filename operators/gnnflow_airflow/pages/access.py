"""The signed-in user of Airflow and the user's permissions, as Airflow's own pages ask for them.

A form carries a token that only Airflow's API server can sign, for this user and for half a day. Airflow's cookie alone
is not enough to move a model: a browser also sends it with forms of other pages on the same site.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.tokens import get_signing_key
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import Depends, Form, HTTPException, Request, status
from itsdangerous import BadSignature, URLSafeTimedSerializer

from gnnflow_airflow.places import Place, list_places

READ, EDIT = "GET", "PUT"
_TOKEN_SECONDS = 12 * 3600


def allows(request: Request, user: Any, place: Place, method: Any) -> bool:
    """Return whether a user may read or edit a workspace's DAG."""
    try:
        requires_access_dag(method, param_dag_id=place.dag)(request, user)
    except HTTPException as error:
        if error.status_code == status.HTTP_403_FORBIDDEN:
            return False
        raise
    return True


def readable(request: Request, user: GetUserDep, place: str) -> Place:
    """Return the workspace of an address, if the user may see it."""
    return _permitted(request, user, place, READ)


def editable(request: Request, user: GetUserDep, place: str, token: Annotated[str, Form()] = "") -> Place:
    """Return the workspace of an address, if the user may edit it and sent a form of ours."""
    found = _permitted(request, user, place, EDIT)
    try:
        signed = _signer().loads(token, max_age=_TOKEN_SECONDS)
    except BadSignature as error:
        raise HTTPException(
            status.HTTP_403_FORBIDDEN, "This form is too old or not ours: load the page anew"
        ) from error
    if signed != [str(user.get_id()), found.name]:
        raise HTTPException(status.HTTP_403_FORBIDDEN, "This form is another user's: load the page anew")
    return found


def refuse_unnamed(user: Any, model: str, approvers: Collection[str]) -> None:
    """Refuse a user whom a model does not name among its approvers, as its task `approve` does."""
    if approvers and not get_auth_manager().is_authorized_hitl_task(assigned_users=set(approvers), user=user):
        raise HTTPException(
            status.HTTP_403_FORBIDDEN,
            f"You are {user.get_id()}, and only {', '.join(sorted(approvers))} may promote {model}: "
            "approval.users in its file names no one else",
        )


def sign_form(user: Any, place: Place) -> str:
    """Return the token of a user's forms."""
    return str(_signer().dumps([str(user.get_id()), place.name]))


def _permitted(request: Request, user: Any, name: str, method: str) -> Place:
    found = list_places().get(name)
    if found is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "There is no such page")
    if not allows(request, user, found, method):
        act = "see" if method == READ else "change"
        raise HTTPException(status.HTTP_403_FORBIDDEN, f"You may not {act} this: it takes a permission on {found.dag}")
    return found


def _signer() -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(get_signing_key("api", "secret_key"), salt="gnnflow-pages")


Readable = Annotated[Place, Depends(readable)]
Editable = Annotated[Place, Depends(editable)]
