"""The first task of every DAG: it makes a valid config of a file, of values or of the form."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from gnnflow_airflow.compare import EXPERIMENT
from gnnflow_airflow.connected import connected
from gnnflow_airflow.reasons import keep_reason

if TYPE_CHECKING:
    from airflow.sdk import Context

    from gnnflow.config import Config
    from gnnflow_airflow.reading import ConfigSource


class PrepareOperator(BaseOperator):
    """Check a config and its tables, write it into its workspace and return its URI for the tasks that follow.

    `config` is the path or URL of a YAML file, a dict, or YAML text. `values` are nested keys and values that the DAG's
    file has read from another, the source: their relative paths begin in its folder. With neither, the parameters of
    the run are the config, under the names of the trigger form. All are fully checked here, because Airflow's API
    accepts keys that the form lacks. Environment variables are read into files and values, never into parameters,
    dicts, texts, overrides or workspace, which a person may type. experiment: data for the CompareOperator. Reads
    schemas and first rows of the tables, and says all that would stop the run, as `gnnflow check` does. dask_conn_id:
    of the stages, whose devices and libraries are then not looked for here. storage_conn_id: as of the stages. configs:
    the folder of the configs that the form offers.
    """

    template_fields: Sequence[str] = ("config", "overrides", "workspace")

    def __init__(
        self,
        *,
        config: ConfigSource | None = None,
        values: Mapping[str, Any] | None = None,
        overrides: Sequence[str] = (),
        workspace: str | None = None,
        experiment: Mapping[str, Any] | None = None,
        source: str = "",
        dask_conn_id: str | None = None,
        storage_conn_id: str | None = None,
        configs: str = "",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.config = config
        self.values = values
        self.overrides = list(overrides)
        self.workspace = workspace
        self.experiment = experiment
        self.source = source
        self.dask_conn_id = dask_conn_id
        self.storage_conn_id = storage_conn_id
        self.configs = configs
        self.kept: str | None = None

    def execute(self, context: Context) -> str:
        """Return the URI of the config's copy in the workspace."""
        with keep_reason(context), connected(self.dask_conn_id, self.storage_conn_id):
            return self._prepare(context)

    def get_openlineage_facets_on_complete(self, _: Any) -> Any:
        """Return the tables that were checked and the config that was written; None before that."""
        from gnnflow_airflow.lineage import lineage_of_config

        if not self.kept:
            return None
        with connected(self.dask_conn_id, self.storage_conn_id):
            return lineage_of_config(self.kept)

    def _prepare(self, context: Context) -> str:
        from gnnflow.graph.errors import GnnflowError
        from gnnflow.remote.driver import PASSING
        from gnnflow_airflow.reading import keep_config, refuse_what_stops

        if self.experiment is not None:
            context["ti"].xcom_push(key=EXPERIMENT, value=dict(self.experiment))
        try:
            config = self._read(context)
            is_elsewhere = bool(self.dask_conn_id) or config.cluster.is_elsewhere
            refuse_what_stops(config, is_elsewhere=is_elsewhere)
            uri = self.kept = keep_config(config)
        except PASSING as error:
            raise AirflowException(str(error)) from None
        except GnnflowError as error:
            raise AirflowFailException(str(error)) from None
        self.log.info("config of %s: %s", config.name, uri)
        return uri

    def _read(self, context: Context) -> Config:
        from gnnflow_airflow.form import CONFIG, PRESET, nested
        from gnnflow_airflow.reading import config_of, read_chosen, read_config, refuse_own_cluster

        overrides, workspace = self.overrides, self.workspace
        if self.config is not None:
            return read_config(self.config, overrides=overrides, workspace=workspace)
        if self.values is not None:
            return config_of(
                self.values, overrides=overrides, workspace=workspace, environment=os.environ, source=self.source
            )
        params = context["params"]
        name = params.get(CONFIG)
        chosen = read_chosen(name, folder=self.configs) if name else None
        refuse_own_cluster(nested({**params, CONFIG: None, PRESET: None}))
        return config_of(nested(params, chosen=chosen), overrides=overrides, workspace=workspace)
