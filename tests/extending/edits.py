"""One toy of each kind that docs/extending.md lists, as the files it adds and the lines it puts into others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_FILES = Path(__file__).parent / "toys"


@dataclass(frozen=True)
class Toy:
    """A toy: the page's heading, new files by their path in the repository, and edits by file.

    An edit is a text that stands in the file once, and the text that takes its place. The page writes `NAME` for the
    toy's name in paths.
    """

    heading: str
    adds: Mapping[str, str] = field(default_factory=dict)
    edits: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)

    @property
    def files(self) -> set[str]:
        """The files that it touches, as the page writes them."""
        return {path.replace("/toy.py", "/NAME.py") for path in (*self.adds, *self.edits)}

    def apply(self, root: Path) -> None:
        """Write the toy into a copy of the repository."""
        for path, name in self.adds.items():
            (root / path).write_text((_FILES / name).read_text())
        for path, pairs in self.edits.items():
            text = (root / path).read_text()
            for old, new in pairs:
                assert text.count(old) == 1, f"{self.heading}: {old!r} stands {text.count(old)} times in {path}"
                text = text.replace(old, new)
            (root / path).write_text(text)


def _before(anchor: str, text: str) -> tuple[str, str]:
    return anchor, text + anchor


def _behind(anchor: str, text: str) -> tuple[str, str]:
    return anchor, anchor + text


def _kind(name: str, base: str, more: str = "") -> Callable[[str], tuple[str, str]]:
    """Return what puts a section's class of kind `toy` before an anchor."""
    kind = 'kind: Literal["toy"] = Field("toy", description="A toy.")'
    return lambda anchor: _before(anchor, f'class {name}({base}):\n    """A toy."""\n\n{more}    {kind}\n\n\n')


TOYS = {
    "layer": Toy(
        "A layer",
        {"gnnflow/layers/toy.py": "layer.py"},
        {
            "gnnflow/config/model_section.py": (
                _kind("ToyConfig", "JoinedKeys", '    layer_class: ClassVar[str] = "gnnflow.layers.toy:Toy"\n')(
                    "class OwnLayerConfig(JoinedKeys):"
                ),
                _before("    | Annotated[OwnLayerConfig, ", '    | Annotated[ToyConfig, Tag("toy")]\n'),
            )
        },
    ),
    "execution": Toy(
        "An execution",
        {"gnnflow/executions/toy.py": "execution.py"},
        {
            "gnnflow/executions/table.py": (
                _before(
                    "from gnnflow.executions.streamed import streaming_obstacle\n",
                    "from gnnflow.executions import toy\n",
                ),
                _before(
                    '        Execution(\n            name="sliced",',
                    '        Execution("toy", "the graph", "two parts", False, toy.supports),\n',
                ),
            ),
            "tests/contracts/adapters.py": (
                _before(
                    "ADAPTERS = {",
                    "def _on_toy(model, case):\n"
                    "    from gnnflow.executions import toy\n\n"
                    "    outputs = toy.layer_outputs(model, case.graph, case.per_layer)\n"
                    "    outputs = [rows[case.targets] for rows in outputs]\n"
                    "    return Ran(model.predict(outputs), model.embedding(outputs))\n\n\n",
                ),
                _before('    "sliced": _on_slices,', '    "toy": _on_toy,\n'),
            ),
        },
    ),
    "head": Toy(
        "A head",
        edits={
            "gnnflow/config/model_section.py": (_before('"jumping"] = Field(', '"toy", '),),
            "gnnflow/layers/model.py": (
                _before(
                    "        if self.head is not None:\n            rows = affine",
                    '        if self.config.head == "toy":\n            rows = nn.functional.normalize(rows)\n',
                ),
            ),
        },
    ),
    "decoder": Toy(
        "A decoder",
        edits={
            "gnnflow/config/task_section.py": (
                _kind("ToyDecoder", "Section")("DecoderConfig = Annotated[DotDecoder"),
                ("DecoderConfig = Annotated[DotDecoder |", "DecoderConfig = Annotated[ToyDecoder | DotDecoder |"),
            ),
            "gnnflow/layers/decoders.py": (
                _before('"distmult", "mlp"]', '"toy", '),
                _before(
                    "_BUILD: dict",
                    "class Toy(Decoder):\n"
                    "    def forward(self, source, target, attributes=None):\n"
                    "        return -(source - target).square().sum(1, keepdim=True)\n\n\n",
                ),
                _before('    "dot": lambda', '    "toy": lambda *_: Toy(),\n'),
            ),
        },
    ),
    "stage": Toy(
        "A stage",
        {"gnnflow/stages/toy.py": "stage.py"},
        {
            "gnnflow/config/stages.py": (
                _before(
                    '        Stage(\n            "select",',
                    '        Stage("toy", "Count.", "gnnflow.stages.toy:work", needs=(STORE,), keys=stage_keys.toy),\n',
                ),
            ),
            "gnnflow/config/stage_keys.py": (
                _before("def infer(config", 'def toy(config: Config) -> Keys:\n    return {"seed": config.seed}\n\n\n'),
            ),
            "gnnflow/config/pipelines.py": (
                ('("ingest", "partition", "select", "flat",', '("ingest", "partition", "toy", "select", "flat",'),
            ),
        },
    ),
    "partitioner": Toy(
        "A partitioner",
        {"gnnflow/partition/toy.py": "partitioner.py"},
        {
            "gnnflow/config/partition_section.py": (
                _kind("ToyPartition", "PartitionKind")("PartitionConfig = Annotated["),
                _before("    | VertexCutPartition,", "    | ToyPartition\n"),
            ),
            "gnnflow/stages/partition.py": (
                _behind("from gnnflow.partition.run import run_rounds\n", "from gnnflow.partition.toy import Toy\n"),
                _before('    "range": lambda', '    "toy": lambda *_: Toy(),\n'),
            ),
        },
    ),
    "selection": Toy(
        "A neighbour selection",
        {"gnnflow/neighbors/toy.py": "selection.py"},
        {
            "gnnflow/config/neighbors_section.py": (
                _kind(
                    "ToyNeighbors",
                    "_Selected",
                    "    def relations(self, schema: GraphSchema) -> dict[Relation, int]:\n"
                    "        return _same_type(schema, self.kind)\n\n",
                )("class OwnNeighbors("),
                _before("    | Annotated[OwnNeighbors, ", '    | Annotated[ToyNeighbors, Tag("toy")]\n'),
            ),
            "gnnflow/stages/select.py": (
                ("metapaths, own, rings, walks\n", "metapaths, own, rings, toy, walks\n"),
                _before('    "rings": rings', '    "toy": toy.run_rounds,\n'),
            ),
        },
    ),
    "sampler": Toy(
        "A sampler",
        edits={
            "gnnflow/config/neighbors_section.py": (
                _kind("ToySampling", "Section", "    fanout: Fanouts = Field(description=_FANOUT)\n")(
                    "Sampling = Annotated["
                ),
                _before("    NoSampling | UniformSampling", "    ToySampling |\n"),
            ),
            "gnnflow/graph/sampling.py": (_before('"uniform", "weighted", "top_k"]', '"toy", '),),
            "gnnflow/sampling/priority.py": (
                _before('    "top_k": _top_k,', '    "toy": lambda hashed, weight: ~_top_k(hashed, weight),\n'),
            ),
        },
    ),
    "updater": Toy(
        "An updater",
        {"gnnflow/train/ranks/toy.py": "updater.py"},
        {
            "gnnflow/config/train_keys.py": (
                _kind("ToyUpdater", "Section")("UpdaterConfig = Annotated["),
                _before("AllReduceConfig | ParameterServerConfig,", "ToyUpdater | "),
            ),
            "gnnflow/train/ranks/task.py": (
                _behind("import AllReduceRank, ServedRank\n", "from gnnflow.train.ranks.toy import ToyRank\n"),
                _before(
                    "    result = train(\n",
                    '    if order.job.train.updater.kind == "toy":\n        rank = ToyRank(group, card)\n',
                ),
            ),
        },
    ),
    "metric": Toy(
        "A metric",
        edits={
            "gnnflow/graph/labels.py": (
                _before('    "mae",\n    "rmse",\n    "mrr",', '    "toy",\n'),
                (
                    "is_class=True,\n        is_list=False,\n        metrics=_OF_ONE_CLASS,",
                    'is_class=True,\n        is_list=False,\n        metrics=(*_OF_ONE_CLASS, "toy"),',
                ),
            ),
            "gnnflow/train/metrics.py": (
                _before(
                    "_MEASURES: dict",
                    "def _toy(logits, labels, _):\n"
                    "    return float((_predicted_class(logits, labels) != labels).mean())\n\n\n",
                ),
                _before('            "accuracy": _accuracy,\n', '            "toy": _toy,\n'),
            ),
        },
    ),
    "odd input": Toy(
        "An odd input",
        edits={
            "tests/robustness/value_cases.py": (
                _behind(
                    "    yield from _bad_values()\n",
                    '    yield refused("a toy", at(-1e60, "weight", table="edges"), "edges.parquet", "negative")\n',
                ),
            ),
        },
    ),
}
