"""The users who alone may promote a model, as its last publication named them.

`approvers.json` of the model's folder holds their ids. Programs with signed-in users keep to it, as Airflow's pages do;
whoever may write the workspace can promote by the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.registry.versions import model_folder
from gnnflow.storage.documents import read_document, write_document
from gnnflow.storage.filesystem import exists, join

if TYPE_CHECKING:
    from collections.abc import Sequence

_FILE = "approvers.json"
_USERS = "users"


def keep_approvers(workspace: str, name: str, users: Sequence[str]) -> None:
    """Note the users who alone may promote a model; none where anybody may who can edit."""
    if tuple(users) != read_approvers(workspace, name):
        write_document(join(model_folder(workspace, name), _FILE), {_USERS: list(users)})


def read_approvers(workspace: str, name: str) -> tuple[str, ...]:
    """Return the users who alone may promote a model; none where anybody may who can edit."""
    where = join(model_folder(workspace, name), _FILE)
    if not exists(where):
        return ()
    held = read_document(where, fix="Publish the model again, after the file is deleted.")
    return tuple(map(str, held.get(_USERS, ())))
