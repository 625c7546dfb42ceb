"""The aliases of a model's versions (champion in service, candidate waiting) and every move, rejections among them.

The state is one document. A change writes its next revision exclusively, so readers see the state before or after a
change, never between, and of two concurrent changes the second sees the first: nothing is lost and nothing waits for a
lock. Documents are small and the last one holds the whole history. `newest.json` names the last revision and is written
after it: without it a deleted last revision would silently put an earlier champion back in service.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from gnnflow.graph.errors import RegistryError, StorageError
from gnnflow.registry.versions import (
    ALIASES,
    Version,
    list_versions,
    model_folder,
    numbered,
    read_version,
    unknown_model,
    unknown_version,
)
from gnnflow.storage import run_folder
from gnnflow.storage.documents import encode_document, read_document, write_document
from gnnflow.storage.filesystem import exists, join
from gnnflow.storage.workspace import Workspace
from gnnflow.storage.writing import create_exclusive

Mark = Literal["champion", "candidate", "rejected"]
_REJECTED: Literal["rejected"] = "rejected"
_NEWEST = "newest.json"
_TEXTS = ("alias", "reason", "at")
_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,99})@(champion|candidate|[0-9]+)")


class ChampionMovedError(RegistryError):
    """The champion moved, or the version was rejected, after the decision to promote or to roll back was made."""


@dataclass(frozen=True)
class Aliases:
    """The state of a model's aliases.

    former: earlier champions, to which a rollback returns from the end. withdrawn: versions that a rollback took out of
    service, rejected: versions that a person turned down; only a person promotes either again. history: every move,
    oldest first; the alias of a rejection is `rejected`.
    """

    champion: int | None = None
    candidate: int | None = None
    former: tuple[int, ...] = ()
    withdrawn: tuple[int, ...] = ()
    history: tuple[dict[str, Any], ...] = ()
    rejected: tuple[int, ...] = ()

    def rejection(self, version: int) -> dict[str, Any]:
        """Return the move that rejected a version; empty where the version does not stand rejected."""
        moves = (move for move in reversed(self.history) if (move["alias"], move["to"]) == (_REJECTED, version))
        return next(moves) if version in self.rejected else {}

    def decided(self, version: int) -> dict[str, Any]:
        """Return the last move that a comparison, or else a person, made to a version; empty where none did."""
        moves = [move for move in self.history if move["to"] == version]
        return next((move for move in reversed(moves) if "compared" in move), moves[-1] if moves else {})

    def of(self, version: int) -> tuple[Mark, ...]:
        """Return the aliases of a version; `rejected` where the version stands rejected."""
        named: dict[Mark, tuple[int | None, ...]] = {
            "champion": (self.champion,),
            "candidate": (self.candidate,),
            _REJECTED: self.rejected,
        }
        return tuple(mark for mark, numbers in named.items() if version in numbers)


def read_aliases(workspace: str, name: str) -> Aliases:
    """Return a model's aliases; none are set where nothing was published."""
    return _read(join(model_folder(workspace, name), ALIASES))[1]


def published_versions(workspace: str, name: str) -> tuple[int, ...]:
    """Return the numbers of a model's versions, ascending, with versions whose files were deleted."""
    named = {move["to"] for move in read_aliases(workspace, name).history}
    return tuple(sorted(named | set(list_versions(workspace, name))))


def find_version(workspace: str, name: str, which: str) -> Version:
    """Return the version of a number or an alias. Raises RegistryError where there is none."""
    aliases = read_aliases(workspace, name)
    number = (
        int(which) if which.isdecimal() else {"champion": aliases.champion, "candidate": aliases.candidate}.get(which)
    )
    if number is None:
        raise unknown_version(workspace, name, which)
    return read_version(workspace, name, number)


def find_named(named: str, *, workspace: str) -> Version | None:
    """Return the version that NAME@VERSION names; None for another text, and for a file's name.

    Raises RegistryError where there is no such version.
    """
    found = _NAMED.fullmatch(named)
    return None if found is None or exists(named) else find_version(workspace, found[1], found[2])


def find_run(named: str, *, workspace: str) -> str:
    """Return a run's folder. named: its URI, the name of a run in the workspace, or NAME@VERSION of a published one.

    Raises StorageError where there is no such run, RegistryError where there is no such version.
    """
    version = find_named(named, workspace=workspace)
    return run_folder.find_run(named, workspace=Workspace.at(workspace)) if version is None else version.run


def nominate(
    workspace: str,
    name: str,
    version: int,
    *,
    reason: str = "published",
    compared: Mapping[str, Any] | None = None,
) -> Aliases:
    """Make a version the candidate, unless it is in service or rejected. compared: as for `promote`."""
    read_version(workspace, name, version)

    def change(state: Aliases) -> Aliases:
        if version in {state.champion, state.candidate, *state.rejected}:
            return state
        moved = replace(state, candidate=version)
        return _moved(moved, "candidate", (state.candidate, version), reason, compared)

    return _change(workspace, name, change)


def promote(
    workspace: str,
    name: str,
    version: int,
    *,
    reason: str = "promoted by hand",
    seen: int | None = None,
    compared: Mapping[str, Any] | None = None,
) -> Aliases:
    """Put a version in service. Promoting the champion changes nothing.

    seen: the number of moves in the history that the decision was made with; ChampionMovedError where the champion
    moved since, even if it is the same again, or the version was rejected since. compared: the figures of the decision,
    which the history keeps. Raises RegistryError where there is no such version.
    """
    read_version(workspace, name, version)

    def change(state: Aliases) -> Aliases:
        if state.champion == version:
            return state
        _refuse_moved(state, seen, where=model_folder(workspace, name), version=version)
        former = state.former if state.champion is None else (*state.former, state.champion)
        moved = replace(
            state,
            champion=version,
            candidate=None if state.candidate == version else state.candidate,
            former=former,
            withdrawn=_without(state.withdrawn, version),
            rejected=_without(state.rejected, version),
        )
        return _moved(moved, "champion", (state.champion, version), reason, compared)

    return _change(workspace, name, change)


def reject(workspace: str, name: str, version: int, *, by: str = "by hand", why: str = "") -> Aliases:
    """Turn a version down: it is no candidate any more, and only a person promotes it. Again it changes nothing.

    A rollback does not return to it either. by: who did, and where; why: for the history. Raises RegistryError where
    there is no such version or it is in service.
    """
    read_version(workspace, name, version)

    def change(state: Aliases) -> Aliases:
        if version in state.rejected:
            return state
        if version == state.champion:
            raise RegistryError(
                f"version {version} is in service and cannot be rejected",
                where=model_folder(workspace, name),
                fix=f"Take it out of service first: `gnnflow models rollback {name}`, or promote another version.",
            )
        moved = replace(
            state,
            candidate=None if state.candidate == version else state.candidate,
            former=_without(state.former, version),
            rejected=(*state.rejected, version),
        )
        reason = ": ".join(filter(None, (f"rejected {by}", " ".join(why.split()))))
        return _moved(moved, _REJECTED, (None, version), reason)

    return _change(workspace, name, change)


def _without(numbers: tuple[int, ...], version: int) -> tuple[int, ...]:
    return tuple(number for number in numbers if number != version)


def rollback(
    workspace: str, name: str, *, reason: str = "put back in service by hand", seen: int | None = None
) -> Version:
    """Put the former champion with its predictions back in service and return it.

    Rolling back again goes one step further. seen: as for `promote`. Raises RegistryError where there is no former
    champion, StorageError where its document is gone or damaged; then nothing moves.
    """

    def change(state: Aliases) -> Aliases:
        _refuse_moved(state, seen, where=model_folder(workspace, name))
        if state.champion is None and not list_versions(workspace, name):
            raise unknown_model(workspace, name)
        if state.champion is None or not state.former:
            raise RegistryError(
                "there is no former champion to go back to",
                where=model_folder(workspace, name),
                fix="See `gnnflow models list` and promote a version instead.",
            )
        read_version(workspace, name, state.former[-1])
        moved = replace(
            state,
            champion=state.former[-1],
            former=state.former[:-1],
            withdrawn=(*state.withdrawn, state.champion),
        )
        return _moved(moved, "champion", (state.champion, state.former[-1]), reason)

    champion = _change(workspace, name, change).champion
    assert champion is not None
    return read_version(workspace, name, champion)


def _refuse_moved(state: Aliases, seen: int | None, *, where: str, version: int | None = None) -> None:
    """Raise ChampionMovedError where the champion moved, or a version was rejected, after the first moves seen."""
    if seen is None:
        return
    if any((move["alias"], move["to"]) == (_REJECTED, version) for move in state.history[seen:]):
        raise ChampionMovedError(
            f"version {version} was rejected meanwhile",
            where=where,
            fix="Look at the history and decide again.",
        )
    is_older = len(state.history) < seen  # a state before was restored from a copy
    if is_older or any(move["alias"] == "champion" for move in state.history[seen:]):
        raise ChampionMovedError(
            f"the champion moved meanwhile: now version {state.champion} is in service",
            where=where,
            fix="Look at the history and decide again.",
        )


def _moved(
    state: Aliases,
    mark: Mark,
    ends: tuple[int | None, int],
    reason: str,
    compared: Mapping[str, Any] | None = None,
) -> Aliases:
    """Return the state with one more move. mark: what moved. ends: the versions that had it before and after."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    move: dict[str, Any] = {"alias": mark, "from": ends[0], "to": ends[1], "reason": reason, "at": at}
    if compared is not None:
        move["compared"] = dict(compared)
    return replace(state, history=(*state.history, move))


def _read(folder: str) -> tuple[int, Aliases]:
    newest = _newest(folder)  # read before the list of revisions: a change in between would look like a loss
    revisions = numbered(folder, suffix=".json")
    last = revisions[-1] if revisions else 0
    if last < newest:
        raise StorageError(
            f"is missing, and {_NEWEST} names it as the state of the aliases",
            where=_document(folder, newest),
            fix=f"Restore it from a copy. Without one, delete {_NEWEST} in the same folder: "
            + (f"{_document(ALIASES, last)} is then in force." if last else "no version is then in service."),
        )
    if not revisions:
        return 0, Aliases()
    where = _document(folder, revisions[-1])
    fix = _remedy(revisions)
    held = read_document(where, fix=fix)
    try:
        state = _aliases_of(held)
    except (TypeError, KeyError, ValueError) as error:
        raise StorageError(f"is not a state of aliases ({error})", where=where, fix=fix) from error
    if len(state.history) != revisions[-1]:  # every revision adds one move
        raise StorageError(f"is the state after {len(state.history)} moves, not {revisions[-1]}", where=where, fix=fix)
    return revisions[-1], state


def _newest(folder: str) -> int:
    """Return the revision that `newest.json` names; 0 without one."""
    where = join(folder, _NEWEST)
    if not exists(where):
        return 0
    fix = "Delete this one file: it only guards the revisions in its folder."
    held = read_document(where, fix=fix)
    if not isinstance(held.get("revision"), int):
        raise StorageError("does not name a revision", where=where, fix=fix)
    return int(held["revision"])


def _aliases_of(held: dict[str, Any]) -> Aliases:
    champion, candidate = (None if held[alias] is None else int(held[alias]) for alias in ("champion", "candidate"))
    former, withdrawn = (tuple(int(number) for number in held[kept]) for kept in ("former", "withdrawn"))
    rejected = tuple(int(number) for number in held.get(_REJECTED, ()))  # of an older version: none
    history = tuple(dict(move) for move in held["history"])
    if not all(isinstance(move[key], str) for move in history for key in _TEXTS):
        raise TypeError(f"{', '.join(_TEXTS)} of a move are texts")
    return Aliases(champion, candidate, former, withdrawn, history, rejected)


def _remedy(revisions: list[int]) -> str:
    """Return the fix for a damaged last revision. The others hold the history and must stay."""
    copy = "Restore this one file from a copy."
    if len(revisions) == 1:
        return f"{copy} It is the first, so without a copy: delete it and {_NEWEST}, and promote a version again."
    before = _document(ALIASES, revisions[-2])
    return (
        f"{copy} Without one, delete it and {_NEWEST} and keep the others: {before} is then in force, with the whole "
        "history before the last move, and the last move can be made again."
    )


def _document(folder: str, revision: int) -> str:
    return join(folder, f"{revision:08d}.json")


def _change(workspace: str, name: str, change: Callable[[Aliases], Aliases]) -> Aliases:
    """Apply a change to the newest state, again where another change came first."""
    folder = join(model_folder(workspace, name), ALIASES)
    while True:
        revision, before = _read(folder)
        after = change(before)
        if after == before:
            return before
        if create_exclusive(_document(folder, revision + 1), encode_document(asdict(after))):
            write_document(join(folder, _NEWEST), {"revision": revision + 1})
            return after
