"""A check that the weights of a model, as its config asks for them, fit this machine's memory."""

from __future__ import annotations

from itertools import pairwise

from gnnflow.config import Config, ModelConfig, OwnLayerConfig, PGNNConfig
from gnnflow.config.train_section import needs_ranks
from gnnflow.graph.errors import LayerError
from gnnflow.mapreduce.way import machine_memory
from gnnflow.report.formats import bytes_text

_BYTES = 4  # float32
# Numbers per weight: itself, its gradient, and the optimiser's state.
_TRAINED = {"sgd": 2, "adam": 4, "adamw": 4}


def check_trained_size(config: Config, *, features: int = 1, outputs: int = 1) -> None:
    """Raise LayerError if training a config's model takes more memory than this machine has, for any graph.

    features, outputs: widths that the graph decides, as far as they are known. If training runs elsewhere or on a GPU,
    this machine holds only the weights.
    """
    elsewhere = config.cluster.is_elsewhere and needs_ranks(config.train)
    here = config.train.device == "cpu" and not elsewhere
    check_size(config, trains=here, features=features, outputs=outputs)


def check_size(config: Config, *, trains: bool, features: int = 1, outputs: int = 1) -> None:
    """Raise LayerError if a config's model takes more memory than this machine has.

    trains: count its gradients and the optimiser's state too.
    """
    model, optimizer = config.model, config.train.optimizer
    # with one type these rows are its features
    rows = sum(config.graph.id_embeddings.values()) if config.graph.schema.is_typed else 0
    weights = least_weights(model, features=features, outputs=outputs) + rows * model.hidden
    needed = weights * _BYTES * (_TRAINED[optimizer] if trains else 1)
    memory = machine_memory()
    if needed > memory:
        of_ids = f" and of {rows:,} rows of graph.id_embeddings" if rows else ""
        more = f", their gradients and the state of {optimizer}" if trains else ""
        raise LayerError(
            f"the weights of {model.layers} layers of {model.row_width} columns{of_ids}{more} take "
            f"{bytes_text(needed)} at least, and this machine has {bytes_text(memory)} of memory",
            where="model.hidden",
            fix="Lower it, or model.layers, or take a larger machine.",
        )


def least_weights(model: ModelConfig, *, features: int, outputs: int) -> int:
    """Return the least number of weights of a model: one linear map between the columns of consecutive layers.

    Every built-in layer has one such map or more; heads of a last layer may be averaged. Nothing is known of custom
    layers.
    """
    if isinstance(model, OwnLayerConfig):
        return 0
    widths = [features, *[model.row_width] * (model.layers - 1), model.hidden, outputs]
    if model.encoder == "linear":
        widths.insert(1, model.hidden)
    if model.head == "direct":
        del widths[-2]
    if isinstance(model, PGNNConfig) and model.anchor_sets is not None:
        del widths[-1]  # its last layer has a column per anchor set, from one map to a number
    return sum(width * after for width, after in pairwise(widths))
