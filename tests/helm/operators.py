"""Schemas of the objects of other operators, as far as the chart writes them: ServiceMonitor and ScaledObject.

Their own definitions come in no package. A field that is not here is refused, as by the API server where it is unknown.
"""

from __future__ import annotations

from typing import Any


def _closed(required: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": fields}


def _list_of(kind: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": kind}


_TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_COUNT = {"type": "integer", "minimum": 0}
_METADATA = _closed(("name",), name=_TEXT, labels=_TEXTS)
_POLICY = _closed(
    ("type", "value", "periodSeconds"), type={"enum": ["Pods", "Percent"]}, value=_COUNT, periodSeconds=_COUNT
)
_RULES = _closed(stabilizationWindowSeconds=_COUNT, policies=_list_of(_POLICY))
_DURATION = {"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"}

SCHEMAS = {
    "ServiceMonitor": _closed(
        ("apiVersion", "kind", "metadata", "spec"),
        apiVersion={"const": "monitoring.coreos.com/v1"},
        kind=_TEXT,
        metadata=_METADATA,
        spec=_closed(
            ("endpoints", "selector"),
            selector=_closed(matchLabels=_TEXTS),
            endpoints=_list_of(_closed(port=_TEXT, path=_TEXT, interval=_DURATION)),
        ),
    ),
    "ScaledObject": _closed(
        ("apiVersion", "kind", "metadata", "spec"),
        apiVersion={"const": "keda.sh/v1alpha1"},
        kind=_TEXT,
        metadata=_METADATA,
        spec=_closed(
            ("scaleTargetRef", "triggers"),
            scaleTargetRef=_closed(("name",), name=_TEXT),
            idleReplicaCount={"const": 0},
            minReplicaCount=_COUNT,
            maxReplicaCount=_COUNT,
            pollingInterval=_COUNT,
            cooldownPeriod=_COUNT,
            advanced=_closed(horizontalPodAutoscalerConfig=_closed(behavior=_closed(scaleUp=_RULES, scaleDown=_RULES))),
            # A trigger's metadata are texts, numbers too.
            triggers=_list_of(_closed(("type", "metadata"), type={"const": "metrics-api"}, metadata=_TEXTS)),
        ),
    ),
}
