"""The configuration: YAML -> frozen models, one file per section. Imports nothing heavier than pydantic.

Read `sections.py` first, then `root.py`. Functions elsewhere take their own section or plain values, never the whole
configuration. `python -m gnnflow.config` prints the reference of every key.
"""

from __future__ import annotations

from gnnflow.config.base import Section
from gnnflow.config.cluster_section import AddressCluster, ClusterConfig, LocalCluster, SynchronousCluster
from gnnflow.config.flat_section import FlatConfig
from gnnflow.config.graph_section import GraphConfig
from gnnflow.config.infer_section import InferConfig
from gnnflow.config.loading import config_from_dict, load_config
from gnnflow.config.loss_section import FocalLoss, HuberLoss, LossConfig, OwnLoss, StandardLoss
from gnnflow.config.model_keys import ModelKeys
from gnnflow.config.model_section import (
    GATConfig,
    GATEConfig,
    GCNConfig,
    GGCNConfig,
    GGNNConfig,
    GINConfig,
    HANConfig,
    HGTConfig,
    MAGNNConfig,
    ModelConfig,
    OwnLayerConfig,
    PGNNConfig,
    PinSageConfig,
    RGCNConfig,
    SAGEConfig,
    model_from_dict,
)
from gnnflow.config.neighbors_section import (
    DirectNeighbors,
    NeighborsConfig,
    NoSampling,
    Sampling,
    TopKSampling,
    UniformSampling,
    WeightedSampling,
)
from gnnflow.config.partition_section import (
    BalancedPartition,
    EdgePartition,
    HashPartition,
    LdgPartition,
    LouvainPartition,
    MetisPartition,
    PartitionConfig,
    RangePartition,
    VertexCutPartition,
)
from gnnflow.config.pipelines import PIPELINES
from gnnflow.config.publish_section import GuardsConfig, PublishConfig
from gnnflow.config.root import Config
from gnnflow.config.schedule_section import (
    ConstantSchedule,
    CosineSchedule,
    LinearSchedule,
    PlateauSchedule,
    ScheduleConfig,
)
from gnnflow.config.stages import STAGES, Stage
from gnnflow.config.task_section import (
    DegreeNegatives,
    EdgeTask,
    InBatchNegatives,
    LinkTask,
    MLPDecoder,
    NegativesConfig,
    NodeTask,
    PairTask,
    RandomSplit,
    TaskConfig,
    UniformNegatives,
)
from gnnflow.config.train_keys import Device
from gnnflow.config.train_section import ClusterBatchConfig, GlobalBatchConfig, MiniBatchConfig, TrainConfig
from gnnflow.config.updater_section import AllReduceConfig, ParameterServerConfig, UpdaterConfig

__all__ = [
    "PIPELINES",
    "STAGES",
    "AddressCluster",
    "AllReduceConfig",
    "BalancedPartition",
    "ClusterBatchConfig",
    "ClusterConfig",
    "Config",
    "ConstantSchedule",
    "CosineSchedule",
    "DegreeNegatives",
    "Device",
    "DirectNeighbors",
    "EdgePartition",
    "EdgeTask",
    "FlatConfig",
    "FocalLoss",
    "GATConfig",
    "GATEConfig",
    "GCNConfig",
    "GGCNConfig",
    "GGNNConfig",
    "GINConfig",
    "GlobalBatchConfig",
    "GraphConfig",
    "GuardsConfig",
    "HANConfig",
    "HGTConfig",
    "HashPartition",
    "HuberLoss",
    "InBatchNegatives",
    "InferConfig",
    "LdgPartition",
    "LinearSchedule",
    "LinkTask",
    "LocalCluster",
    "LossConfig",
    "LouvainPartition",
    "MAGNNConfig",
    "MLPDecoder",
    "MetisPartition",
    "MiniBatchConfig",
    "ModelConfig",
    "ModelKeys",
    "NegativesConfig",
    "NeighborsConfig",
    "NoSampling",
    "NodeTask",
    "OwnLayerConfig",
    "OwnLoss",
    "PGNNConfig",
    "PairTask",
    "ParameterServerConfig",
    "PartitionConfig",
    "PinSageConfig",
    "PlateauSchedule",
    "PublishConfig",
    "RGCNConfig",
    "RandomSplit",
    "RangePartition",
    "SAGEConfig",
    "Sampling",
    "ScheduleConfig",
    "Section",
    "Stage",
    "StandardLoss",
    "SynchronousCluster",
    "TaskConfig",
    "TopKSampling",
    "TrainConfig",
    "UniformNegatives",
    "UniformSampling",
    "UpdaterConfig",
    "VertexCutPartition",
    "WeightedSampling",
    "config_from_dict",
    "load_config",
    "model_from_dict",
]
