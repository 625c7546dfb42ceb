"""The first task of every DAG: what a person asked for becomes a config that is known to be valid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context


class PrepareOperator(BaseOperator):
    """Validate a config, write it into its workspace and return its URI for the tasks that follow.

    `config` is the path or URL of a YAML file, `values` nested keys and values; with neither, the run's parameters are
    the config, as the trigger form names them. All are checked here in full, because Airflow's API accepts keys that no
    form has. Fails without a retry.
    """

    template_fields: Sequence[str] = ("config", "values", "overrides", "workspace")

    def __init__(
        self,
        *,
        config: str | None = None,
        values: Mapping[str, Any] | None = None,
        overrides: Sequence[str] = (),
        workspace: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.config = config
        self.values = values
        self.overrides = list(overrides)
        self.workspace = workspace

    def execute(self, context: Context) -> str:
        """Return the URI of the config's copy in the workspace."""
        from gnnflow.config import config_from_dict
        from gnnflow.graph.errors import GnnflowError
        from gnnflow_airflow.form import nested
        from gnnflow_airflow.reading import keep_config, read_config

        try:
            if self.config:
                config = read_config(self.config, overrides=self.overrides, workspace=self.workspace)
            else:
                values = nested(context["params"]) if self.values is None else self.values
                config = config_from_dict(values, overrides=self.overrides, workspace=self.workspace or None)
            uri = keep_config(config)
        except GnnflowError as error:
            raise AirflowFailException(str(error)) from error
        self.log.info("config of %s: %s", config.name, uri)
        return uri
