"""Files of models: one YAML file says which config is retrained, when, and who answers for it.

config: ../configs/fraud.yaml     # path or URL, or the config's keys
schedule: "0 3 * * 0"
params: {train.lr: 0.003}
approval: true
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, ValidationError, model_validator

from gnnflow.config.base import Number, Section, problem
from gnnflow.graph.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gnnflow.config import Config

_Text = Annotated[str, Field(min_length=1)]


class Approval(Section):
    """A person's decision before a better model goes into service."""

    users: tuple[_Text, ...] = Field((), description="Ids of users who may decide; empty: all who may edit the run.")
    hours: Annotated[Number, Field(gt=0)] | None = Field(
        72, description="Without an answer for so long, the model in service stays; null waits forever."
    )


class ModelFile(Section):
    """The keys of a model's file."""

    config: _Text | dict[str, Any] = Field(description="Path or URL of a config, seen from this file, or its keys.")
    schedule: _Text | None = Field(None, description="Cron expression in UTC: when to retrain at the latest.")
    assets: tuple[_Text, ...] | None = Field(
        None, description="Names of assets: retrain once all of them have new data. Left out: NAME/graph."
    )
    partitions: bool = Field(
        default=False, description="One run for each partition of the assets; its key is {{ partition_key }}."
    )
    params: dict[_Text, Any] = Field({}, description="Keys of the config with other values, such as train.lr: 0.003.")
    guards: dict[_Text, Any] = Field({}, description="Keys of the config's section guards with other values.")
    pool: _Text | None = Field(None, description="Airflow's pool of all tasks.")
    owner: _Text = Field("airflow", description="Owner of the DAG.")
    alerts: tuple[_Text, ...] = Field(
        (), description="Mail addresses that hear of a failed run and of a request for approval."
    )
    approval: bool | Approval = Field(
        default=False, description="Ask a person before a better model goes into service; true or {users, hours}."
    )

    @model_validator(mode="after")
    def _check_schedule(self) -> ModelFile:
        if self.schedule and self.partitions:
            raise problem("partitions come with asset events, not with a clock", key="schedule", fix="Leave it out.")
        if self.partitions and self.assets == ():
            raise problem("partitions are of assets, and none are named", key="assets", fix="Name one.")
        return self


@dataclass(frozen=True)
class RetrainedModel:
    """A model's file, and its config before a run fills in dates.

    source: the path or URL of the config, from whose folder its relative paths are seen.
    """

    file: ModelFile
    source: str
    config: Config

    @property
    def name(self) -> str:
        """The name of the model in the registry."""
        return self.config.publish.name or self.config.name

    @property
    def approval(self) -> Approval | None:
        """The approval, if the file or the config leaves the decision to a person."""
        if isinstance(self.file.approval, Approval):
            return self.file.approval
        publish = self.config.publish
        return Approval(users=publish.approvers) if publish.approval else None

    def values(self, read: Callable[[str], str]) -> dict[str, Any]:
        """Return the values of the config as the model changes them, before variables and dates are filled in."""
        return _values(self.file, self.source, read)


def read_model(uri: str, *, read: Callable[[str], str]) -> RetrainedModel:
    """Return the model of a file. read: a function that returns the text at a path or URL.

    Raises ConfigError or StorageError, with texts for users.
    """
    from gnnflow.config.messages import explain
    from gnnflow.config.yaml_text import read_yaml

    raw = read_yaml(read(uri), source=uri)
    if not isinstance(raw, dict):
        raise ConfigError("a model's file is a mapping of keys", where=uri, fix="Start with `config:`.")
    try:
        file = ModelFile.model_validate(raw)
    except ValidationError as error:
        raise explain(error, raw, model=ModelFile, source=uri) from None
    try:
        return model_of(file, source=uri, read=read)
    except ConfigError as error:
        # the mistake may be in either file, since params and guards are laid over the config
        where = error.where if error.where.startswith(uri) else f"{uri}, with the config {error.where}"
        raise ConfigError(error.problem, where=where, fix=error.fix) from error


def model_of(file: ModelFile, *, source: str, read: Callable[[str], str]) -> RetrainedModel:
    """Return the model of a file's keys. source: the file's path or URL."""
    from gnnflow.config.places import folder_of, place_from
    from gnnflow_airflow.reading import config_of

    place = source if isinstance(file.config, Mapping) else place_from(file.config, folder_of(source))
    values = _values(file, place, read)
    return RetrainedModel(file, place, config_of(values, environment=os.environ, source=place, is_run=False))


def _values(file: ModelFile, source: str, read: Callable[[str], str]) -> dict[str, Any]:
    from gnnflow.config.environment import apply_overrides
    from gnnflow.config.loading import refuse_experiment, values_of

    is_path = isinstance(file.config, str)
    own = values_of(read(source), source=source) if is_path else refuse_experiment(file.config, source=source)
    changed = {**file.params, **{f"guards.{key}": value for key, value in file.guards.items()}}
    if file.approval:
        changed["publish.approval"] = True
    if isinstance(file.approval, Approval):
        changed["publish.approvers"] = list(file.approval.users)
    return dict(apply_overrides(own, [f"{key}={json.dumps(value)}" for key, value in changed.items()]))
