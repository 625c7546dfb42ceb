"""OpenLineage: the datasets that a task read and wrote, with rows, bytes and columns where they have these.

Only manifests and the footers of files are read. Importing this needs the OpenLineage provider, so it happens only when
Airflow asks for lineage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gnnflow.config import Config


@dataclass(frozen=True)
class Dataset:
    """A dataset as lineage reports it. columns: (name, type) pairs."""

    uri: str
    rows: int | None
    size: int | None
    columns: tuple[tuple[str, str], ...]

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name by OpenLineage's naming rules."""
        parts = urlsplit(self.uri)
        if "://" not in self.uri or parts.scheme == "file":
            return "file", parts.path if parts.scheme else self.uri
        return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/") or "/"

    @property
    def is_plain(self) -> bool:
        """True if nothing is known of it but where it is."""
        return self.rows is None and self.size is None


def lineage_of(stage: str, config: Config, outcome: Mapping[str, Any]) -> Any:
    """Return the stage's OperatorLineage."""
    return _lineage(*datasets_of(stage, config, outcome))


def lineage_of_config(uri: str) -> Any:
    """Return the OperatorLineage of the task that checked a config and its tables, and wrote it to a URI."""
    from gnnflow.config.graph_section import tables_by_name
    from gnnflow_airflow.reading import read_config

    return _lineage([_table(table) for table in tables_by_name(read_config(uri).graph).values()], [_plain(uri)])


def lineage_of_files(*, reads: Iterable[str] = (), writes: Iterable[str] = ()) -> Any:
    """Return the OperatorLineage of a task whose inputs and outputs have no rows."""
    return _lineage([_plain(uri) for uri in reads], [_plain(uri) for uri in writes])


def _lineage(inputs: Sequence[Dataset], outputs: Sequence[Dataset]) -> Any:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset, OutputDataset
    from openlineage.client.facet_v2 import data_quality_metrics_input_dataset as quality
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    lineage = OperatorLineage()
    for read in inputs:
        held = quality.DataQualityMetricsInputDatasetFacet(columnMetrics={}, rowCount=read.rows, bytes=read.size)
        facts = {} if read.is_plain else {"dataQualityMetrics": held}
        lineage.inputs.append(InputDataset(*read.key, facets=_schema(read), inputFacets=facts))
    for written in outputs:
        made = statistics.OutputStatisticsOutputDatasetFacet(rowCount=written.rows, size=written.size)
        facts = {} if written.is_plain else {"outputStatistics": made}
        lineage.outputs.append(OutputDataset(*written.key, facets=_schema(written), outputFacets=facts))
    return lineage


def datasets_of(stage: str, config: Config, outcome: Mapping[str, Any]) -> tuple[Sequence[Dataset], Sequence[Dataset]]:
    """Return the datasets that a finished stage read, and those that it wrote."""
    from gnnflow.config import STAGES
    from gnnflow.config.graph_section import tables_by_name
    from gnnflow.stages.resolve import resolve
    from gnnflow.storage.manifest import committed

    run = resolve(config)
    if STAGES[stage].reads_tables:
        inputs = [_table(table) for table in tables_by_name(config.graph).values()]
    elif "reads" in outcome:  # a stage that reads more than this run's artifacts
        inputs = [_artifact(uri) if committed(uri) else _plain(uri) for uri in outcome["reads"]]
    else:
        inputs = [_artifact(run.artifact(need)) for need in run.needs(stage)]
    if "artifact" in outcome:
        return inputs, [_artifact(outcome["artifact"])]
    if "uri" in outcome:
        return inputs, [_plain(outcome["uri"])]
    return inputs, [_table(outcome["predictions"])] if "predictions" in outcome else []


def _plain(uri: str) -> Dataset:
    from gnnflow.storage.filesystem import absolute

    return Dataset(uri if "://" in uri else absolute(uri), None, None, ())


def _table(uri: str) -> Dataset:
    from gnnflow.storage.filesystem import absolute
    from gnnflow.storage.user_tables import scan, schema_of

    where = absolute(uri)
    chunks = scan(where)
    counts = [chunk.num_rows for chunk in chunks]
    rows = None if None in counts else sum(count or 0 for count in counts)
    fields = schema_of(chunks[0]) if chunks else ()
    return Dataset(where, rows, None, tuple((field.name, str(field.type)) for field in fields))


def _artifact(uri: str) -> Dataset:
    from gnnflow.storage.filesystem import join
    from gnnflow.storage.manifest import read_manifest

    manifest = read_manifest(uri)
    parquet = [entry.name for entry in manifest.files if entry.name.endswith(".parquet")]
    columns = _table(join(uri, parquet[0])).columns if parquet else ()
    return Dataset(uri, manifest.rows_out, manifest.num_bytes, columns)


def _schema(dataset: Dataset) -> dict[str, Any]:
    from openlineage.client.facet_v2 import schema_dataset

    fields = [schema_dataset.SchemaDatasetFacetFields(name=name, type=kind) for name, kind in dataset.columns]
    return {"schema": schema_dataset.SchemaDatasetFacet(fields=fields)} if fields else {}
