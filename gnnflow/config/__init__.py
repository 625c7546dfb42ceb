"""The configuration: YAML -> frozen models, one file per section. Imports nothing heavier than pydantic.

Read `root.py` first. Functions elsewhere take their own section or plain values, never the whole
configuration. `python -m gnnflow.config` prints the reference of every key.
"""

from __future__ import annotations

from gnnflow.config.base import Section
from gnnflow.config.cluster_section import AddressCluster, ClusterConfig, LocalCluster, SynchronousCluster
from gnnflow.config.flat_section import FlatConfig
from gnnflow.config.graph_section import GraphConfig
from gnnflow.config.infer_section import InferConfig
from gnnflow.config.loading import config_from_dict, load_config
from gnnflow.config.model_section import BUILT_IN_KINDS, ModelConfig
from gnnflow.config.neighbors_section import (
    NeighborsConfig,
    NoSampling,
    Sampling,
    TopKSampling,
    UniformSampling,
    WeightedSampling,
)
from gnnflow.config.publish_section import GuardsConfig, PublishConfig
from gnnflow.config.root import Config
from gnnflow.config.stages import PIPELINES, STAGES, Stage
from gnnflow.config.train_section import TrainConfig

__all__ = [
    "BUILT_IN_KINDS",
    "PIPELINES",
    "STAGES",
    "AddressCluster",
    "ClusterConfig",
    "Config",
    "FlatConfig",
    "GraphConfig",
    "GuardsConfig",
    "InferConfig",
    "LocalCluster",
    "ModelConfig",
    "NeighborsConfig",
    "NoSampling",
    "PublishConfig",
    "Sampling",
    "Section",
    "Stage",
    "SynchronousCluster",
    "TopKSampling",
    "TrainConfig",
    "UniformSampling",
    "WeightedSampling",
    "config_from_dict",
    "load_config",
]
