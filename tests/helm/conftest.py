"""The chart, its example values and what Helm makes of them; skipped where Helm's library is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "helm" / "gnnflow"

WITHOUT_HELM = "Helm's library needs Python 3.12: run `make test-helm`"

_EXTRA = {
    "affinity": {"podAntiAffinity": {}},
    "extraEnv": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
    "extraVolumes": [{"name": "tables", "persistentVolumeClaim": {"claimName": "tables"}}],
    "extraVolumeMounts": [{"name": "tables", "mountPath": "/tables", "readOnly": True}],
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "graphs", "operator": "Exists"}],
    "priorityClassName": "high",
    "podAnnotations": {"example.com/team": "graphs"},
}
_WORKERS = {
    **_EXTRA,
    "enabled": True,
    "runtimeClassName": "nvidia",
    "autoscaling": {"enabled": True, "keda": {"enabled": True}},
}
_OFF = {"enabled": False}

EVERYTHING_ON = {
    "image": {"pullSecrets": ["registry-key"]},
    "workspace": {"kind": "volume", "volume": {"storageClass": "fast"}, "bucket": {"existingSecret": "bucket-keys"}},
    "allowed": {"modules": ["mine.layers"], "variables": ["TEAM_*"], "urls": ["s3://tables/"]},
    "ownFiles": {
        "configMap": "my-configs",
        "git": {
            "repository": "https://example.com/graphs",
            "revision": "v1",
            "folder": "src",
            "existingSecret": "git-token",
        },
    },
    "tls": {"existingSecret": "dask-certificates"},
    "environment": {"GNNFLOW_RETRIES": "5"},
    "environmentSecrets": ["mlflow"],
    "serviceAccount": {"annotations": {"example.com/role": "graphs"}},
    "scheduler": _EXTRA,
    "workers": _WORKERS,
    "gpuWorkers": _WORKERS,
    "networkPolicy": {
        "clients": [{"podLabels": {"app": "notebook"}, "namespaceLabels": {"team": "research"}}],
        "readers": {"prometheus": {"podLabels": {"app": "prometheus"}, "namespaceLabels": {"team": "operators"}}},
        "egress": [{"cidr": "10.0.0.0/8", "ports": [443, 9000], "except": ["10.1.0.0/16"]}],
    },
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "host": "dask.example.com",
        "annotations": {"example.com/auth": "basic"},
        "tlsSecret": "web-certificate",
    },
    "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
    "airflow": {"enabled": True, "statsd": {"enabled": True}},
}
EVERYTHING_OFF = {
    "serviceAccount": {"create": False},
    "scheduler": {"podDisruptionBudget": _OFF},
    "workers": {"enabled": False, "autoscaling": _OFF, "podDisruptionBudget": _OFF},
    "gpuWorkers": _OFF,
    "networkPolicy": _OFF,
    "ingress": _OFF,
    "metrics": {"serviceMonitor": _OFF},
    "airflow": _OFF,
}

# Each is what a user would install: files and values that are merged in this order over the chart's own values.
SETS: dict[str, tuple[str | dict[str, Any], ...]] = {
    "defaults": (),
    "laptop": ("laptop",),
    "eks": ("eks",),
    "gpu": ("gpu",),
    "eks with gpu": ("eks", "gpu"),
    "eks with operators": ("eks", "metrics", "scale-to-zero", "tls"),
    "laptop with own files": ("laptop", "own-files"),
    "everything on": (EVERYTHING_ON,),
    "everything off": (EVERYTHING_OFF,),
}


def merged(*parts: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return example values, by their names, and others merged as `helm -f one -f two` does."""
    values: dict[str, Any] = {}
    for part in parts:
        above = yaml.safe_load((CHART / "examples" / f"{part}.yaml").read_text()) if isinstance(part, str) else part
        values = _over(values, above)
    return values


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = {key: _over(below[key], above[key]) for key in below.keys() & above.keys() if isinstance(above[key], dict)}
    return {**below, **above, **both}


@pytest.fixture(scope="session")
def render() -> Callable[..., Any]:
    """Render the chart: `render(values)`."""
    pytest.importorskip("helm_sdkpy", reason=WITHOUT_HELM)
    from tests.helm import engine

    def chart(values: Mapping[str, Any], **named: Any) -> Any:
        return engine.render(named.pop("chart", CHART), values, **named)

    chart({})  # Go's runtime opens what it keeps once, when Helm is first asked
    return chart


@pytest.fixture(scope="session")
def rendered_sets(render) -> dict[str, Any]:
    """Every set of values, rendered once.

    Airflow's own chart is not in the repository, so what these hold of Airflow is what our chart makes for it.
    """
    return {name: render(merged(*files)) for name, files in SETS.items()}


@pytest.fixture(params=SETS)
def rendered(request, rendered_sets):
    """One set of values, rendered."""
    return rendered_sets[request.param]
