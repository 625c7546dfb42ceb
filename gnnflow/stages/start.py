"""The model that training starts from (`train.start`): its folder, its content, and checks that it fits.

A run names it once, when it is resolved: an alias becomes its version, and the digest of the model's files enters the
fingerprint of training. A copy elsewhere is the same start; an alias that moved is another one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gnnflow import registry
from gnnflow.config.base import published_name
from gnnflow.graph.encodings import encode_alike
from gnnflow.graph.errors import ConfigError, LayerError, RegistryError
from gnnflow.graph.scales import SCALING_KEYS, agree
from gnnflow.registry.versions import CONFIG
from gnnflow.storage.documents import read_document
from gnnflow.storage.filesystem import absolute, exists, join
from gnnflow.storage.manifest import digest_of, read_manifest
from gnnflow.storage.run_folder import read_run
from gnnflow.storage.verified import entries_of, read_verified, remedy
from gnnflow.storage.workspace import MANIFEST, MODEL_FILES, RUN, VERSION, WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gnnflow.config import Config
    from gnnflow.graph.encodings import States
    from gnnflow.graph.facts import GraphFacts
    from gnnflow.graph.scales import Scales
    from gnnflow.layers.model import ModelInputs
    from gnnflow.layers.start import Start
    from gnnflow.storage.writing import FileEntry

_KEY = "train.start"


@dataclass(frozen=True)
class FoundStart:
    """A model that a config starts from. name: a config name for exactly this model; digest: over its two files.

    version: the published version, if the config named an alias. scales, columns, states: of the tables that it was
    trained on, if it is published and holds them. graph: the section of its config, empty if unknown. other_classes:
    its classes, or their order, differ from this config's.
    """

    name: str
    folder: str
    digest: str
    version: registry.Version | None = None
    scales: Scales = field(default_factory=dict)
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    graph: Mapping[str, Any] = field(default_factory=dict)
    other_classes: bool = False
    states: States | None = None

    @property
    def key(self) -> str:
        """The part of the start that decides the result of training."""
        return f"{self.digest}, other classes" if self.other_classes else self.digest


def find_start(config: Config) -> FoundStart | None:
    """Return the model that a config's training starts from, None if it starts from its seed.

    Raises RegistryError if no such version is published, ConfigError if the folder holds no model, StorageError if a
    document is damaged.
    """
    start = config.train.start
    if start is None:
        return None
    if (named := published_name(start)) is not None:
        name, which = named
        version = registry.find_version(config.workspace, name, which)
        digest = _digest(version.files, where=version.uri)
        alias_of = None if which.isdecimal() else version
        columns, graph = version.signature.columns, json.loads(version.read(CONFIG))["graph"]
        differ = _classes_differ(config, graph)
        return FoundStart(
            version.pinned, version.uri, digest, alias_of, version.scales, columns, graph, differ, version.states
        )
    folder, graph = absolute(start), {}
    if exists(join(folder, RUN)):
        record = read_run(folder)
        folder, graph = str(record["artifacts"]["train"]), record["config"]["graph"]
    elif exists(join(folder, VERSION)):
        graph = read_document(join(folder, CONFIG), fix=remedy(folder, CONFIG))["graph"]
    digest = _digest(_listed(folder), where=start)
    return FoundStart(start, folder, digest, graph=graph, other_classes=_classes_differ(config, graph))


def _classes_differ(config: Config, graph: Mapping[str, Any]) -> bool:
    theirs, ours = graph.get("classes") or (), config.graph.classes or ()
    are_listed = theirs and ours and not isinstance(theirs, str) and not isinstance(ours, str)
    return bool(are_listed) and [*theirs] != [*ours]


def start_of_version(config: Config, version: registry.Version) -> FoundStart | None:
    """Return the model that a published version's training started from, None if it is not known any more."""
    start = json.loads(version.read(CONFIG))["train"].get("start")
    if start is None:
        return None
    train = config.train.model_copy(update={"start": start})
    try:
        return find_start(config.model_copy(update={"train": train}))
    except RegistryError:
        return None


def check_start(config: Config, *, inputs: ModelInputs | None = None) -> FoundStart | None:
    """Return the model of `find_start`. Raises LayerError if its architecture differs from the config's.

    inputs: the part of the architecture that the graph decides, if it is known already.
    """
    found = find_start(config)
    if found is None:
        return None
    from gnnflow.layers.saved import read_description
    from gnnflow.layers.start import differences

    if unfit := differences(config.model, read_description(found.folder), inputs=inputs):
        raise LayerError(
            f"{config.train.start!r} is a model of another architecture: {'; '.join(unfit)}",
            where=_KEY,
            fix="Set the keys of model as they are there, name a model of such a graph, or set train.start to null.",
        )
    return found


def load_start(config: Config, *, inputs: ModelInputs, graph: GraphFacts, tell: Callable[[str], None]) -> Start | None:
    """Return the weights that training starts from. Raises as `check_start`, and StorageError for damaged weights.

    tell: receives a message for each difference between the model's columns and the graph's.
    """
    from gnnflow.layers.start import Start

    found = check_start(config, inputs=inputs)
    if found is None:
        return None
    for text in _column_differences(found, config, graph):
        tell(f"{_KEY}: {text}")
    weights = read_verified(found.folder, WEIGHTS)
    return Start(found.name, found.digest, weights, other_classes=found.other_classes)


def _column_differences(found: FoundStart, config: Config, graph: GraphFacts) -> Iterator[str]:
    """Yield the differences between the graph's columns and the columns that the model learned from."""
    for other in registry.other_columns(found.columns, graph.columns_read):
        yield f"{other}. {found.name} learned them by their positions."
    ours, theirs = config.graph, found.graph
    pairs = {key: (getattr(ours, key), theirs.get(key, default)) for key, default in SCALING_KEYS.items() if theirs}
    differ = {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
    for key, (own, other_one) in differ.items():
        yield f"graph.{key} is {own}, and {found.name} learned with {other_one}."
    if found.states is not None and not differ and not encode_alike(found.states, graph.states):
        yield f"columns were encoded otherwise for {found.name}. Set graph.scaled_as: {found.name}."
    elif not differ and found.scales and not agree(found.scales, graph.scales):
        yield f"columns were scaled by other figures for {found.name}. Set graph.scaled_as: {found.name}."


def _listed(folder: str) -> tuple[FileEntry, ...]:
    """Return the files that an artifact or a version lists; none for any other folder."""
    if exists(join(folder, MANIFEST)):
        return read_manifest(folder).files
    where = join(folder, VERSION)
    if exists(where):
        fix = remedy(folder, VERSION)
        return entries_of(read_document(where, fix=fix).get("files"), where=where, fix=fix)
    return ()


def _digest(files: tuple[FileEntry, ...], *, where: str) -> str:
    model = tuple(sorted((entry for entry in files if entry.name in MODEL_FILES), key=lambda entry: entry.name))
    if len(model) < len(MODEL_FILES):
        raise ConfigError(
            f"there is no trained model at {where!r}",
            where=_KEY,
            fix="Name a published model (NAME or NAME/VERSION), or the folder of a completed run or of a version.",
        )
    return digest_of(model)
