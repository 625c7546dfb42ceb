"""The table of values in docs/kubernetes.md: each is there, with its default, and changes the objects that it names.

No other test reads a value's effect where its template misspells it: Helm renders an unknown key as nothing.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from tests.helm.conftest import CHART, REPOSITORY, WITHOUT_HELM

pytestmark = pytest.mark.helm
pytest.importorskip("helm_sdkpy", reason=WITHOUT_HELM)

# Another value for each, in the order of the table. A group of workers has the keys of `workers`.
OTHER: dict[str, Any] = {
    "image.repository": "registry.example.com/graphs",
    "image.tag": "2.0",
    "image.pullPolicy": "Always",
    "image.pullSecrets": ["registry-key"],
    "workspace.kind": "bucket",
    "workspace.volume.existingClaim": "mine",
    "workspace.volume.size": "7Gi",
    "workspace.volume.storageClass": "fast",
    "workspace.volume.accessMode": "ReadWriteOnce",
    "workspace.volume.keep": False,
    "workspace.bucket.uri": "s3://other/runs",
    "workspace.bucket.region": "eu-west-3",
    "workspace.bucket.endpoint": "http://minio:9000",
    "workspace.bucket.existingSecret": "bucket-keys",
    "allowed.modules": ["mine.layers"],
    "allowed.variables": ["TEAM_*"],
    "allowed.urls": ["s3://tables/"],
    "ownFiles.configMap": "my-configs",
    "ownFiles.git.repository": "https://example.com/graphs",
    "ownFiles.git.revision": "v9",
    "ownFiles.git.folder": "src",
    "ownFiles.git.existingSecret": "git-token",
    "ownFiles.git.image": "registry.example.com/git-sync:9",
    "ownFiles.git.size": "3Gi",
    "tls.existingSecret": "dask-certificates",
    "environment": {"GNNFLOW_RETRIES": "5"},
    "environmentSecrets": ["mlflow"],
    "serviceAccount.create": False,
    "serviceAccount.name": "somebody",
    "serviceAccount.annotations": {"example.com/role": "graphs"},
    "podSecurity.user": 1234,
    "podSecurity.group": 4321,
    "scheduler.allowedFailures": 3,
    "scheduler.resources": {"requests": {"cpu": "3", "memory": "3Gi"}, "limits": {"cpu": "3", "memory": "3Gi"}},
    "scheduler.nodeSelector": {"disk": "ssd"},
    "scheduler.tolerations": [{"key": "graphs", "operator": "Exists"}],
    "scheduler.affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
            }
        }
    },
    "scheduler.priorityClassName": "high",
    "scheduler.podAnnotations": {"example.com/team": "graphs"},
    "scheduler.extraEnv": [{"name": "NAMED", "value": "set"}],
    "scheduler.extraVolumes": [{"name": "data", "emptyDir": {}}],
    "scheduler.extraVolumeMounts": [{"name": "data", "mountPath": "/data"}],
    "scheduler.podDisruptionBudget.enabled": False,
    "scheduler.podDisruptionBudget.maxUnavailable": 1,
    "workers.enabled": False,
    "workers.replicas": 9,
    "workers.threads": 6,
    "workers.mathThreads": 5,
    "workers.daskResources": {"MEMORY": 2},
    "workers.resources": {"requests": {"cpu": "3", "memory": "9Gi"}, "limits": {"cpu": "3", "memory": "9Gi"}},
    "workers.scratch": "33Gi",
    "workers.drainSeconds": 77,
    "workers.autoscaling.enabled": False,
    "workers.autoscaling.minReplicas": 3,
    "workers.autoscaling.maxReplicas": 33,
    "workers.autoscaling.cpuPercent": 55,
    "workers.autoscaling.scaleDownAfterSeconds": 66,
    "workers.autoscaling.keda.enabled": True,
    "workers.autoscaling.keda.toZero": False,
    "workers.autoscaling.keda.pollSeconds": 44,
    "workers.podDisruptionBudget.enabled": False,
    "workers.podDisruptionBudget.maxUnavailable": "25%",
    "workers.rollout.maxSurge": 4,
    "workers.rollout.maxUnavailable": 6,
    "workers.nodeSelector": {"disk": "ssd"},
    "workers.tolerations": [{"key": "graphs", "operator": "Exists"}],
    "workers.affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "busy"}}}
            ]
        }
    },
    "workers.priorityClassName": "high",
    "workers.runtimeClassName": "nvidia",
    "workers.podAnnotations": {"example.com/team": "graphs"},
    "workers.extraEnv": [{"name": "NAMED", "value": "set"}],
    "workers.extraVolumes": [{"name": "data", "emptyDir": {}}],
    "workers.extraVolumeMounts": [{"name": "data", "mountPath": "/data"}],
    "networkPolicy.enabled": False,
    "networkPolicy.clients": [{"podLabels": {"app": "notebook"}}],
    "networkPolicy.readers": {"prometheus": {"podLabels": {"app": "prometheus"}}},
    "networkPolicy.dns.namespaceLabels": {"dns": "here"},
    "networkPolicy.dns.cidrs": ["10.9.0.10/32"],
    "networkPolicy.dns.port": 5353,
    "networkPolicy.egress": [{"cidr": "10.0.0.0/8", "ports": [9000], "except": ["10.1.0.0/16"]}],
    "ingress.enabled": True,
    "ingress.className": "nginx",
    "ingress.host": "other.example.com",
    "ingress.annotations": {"example.com/auth": "basic"},
    "ingress.tlsSecret": "web-certificate",
    "metrics.serviceMonitor.enabled": True,
    "metrics.serviceMonitor.interval": "7s",
    "metrics.serviceMonitor.labels": {"release": "prometheus"},
}
_READERS = {"networkPolicy.readers": {"any": {"podLabels": {"app": "any"}}}}
# What must be set for a value to matter, by the beginning of its name.
BELOW: dict[str, dict[str, Any]] = {
    "workspace.kind": {"workspace.bucket.uri": "s3://some/runs"},
    "workspace.bucket": {"workspace.kind": "bucket", "workspace.bucket.uri": "s3://some/runs"},
    "ownFiles.git": {"ownFiles.git.repository": "https://example.com/first", "ownFiles.git.revision": "v1"},
    "workers.replicas": {"workers.autoscaling.enabled": False},
    "workers.autoscaling.keda": {**_READERS, "workers.autoscaling.keda.enabled": True},
    "ingress": {**_READERS, "ingress.enabled": True, "ingress.host": "dask.example.com"},
    "metrics": {**_READERS, "metrics.serviceMonitor.enabled": True},
}
_PODS = ("Deployment dask-scheduler", "Deployment dask-worker", "Pod gnnflow-test")
_MEANT = {"all pods": _PODS, "Dask's pods": _PODS[:2]}


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for path, value in flat.items():
        *outer, last = path.split(".")
        inner = values
        for key in outer:
            inner = inner.setdefault(key, {})
        inner[last] = value
    return values


def leaves(values, path=""):
    """Yield the values that can be set by themselves, with their defaults: those that the other ones name, in full."""
    for key, value in values.items():
        name = f"{path}.{key}".lstrip(".")
        if isinstance(value, dict) and name not in OTHER:
            yield from leaves(value, name)
        else:
            yield name, value


def rows() -> dict[str, tuple[str, list[str]]]:
    """Return the table: each value's default as it is written, and the objects that it changes."""
    text = (REPOSITORY / "docs" / "kubernetes.md").read_text()
    found = re.findall(r"^\| `([a-zA-Z.]+)` \| (.*?) \| .* \| (.*) \|$", text, re.MULTILINE)
    return {name: (default.strip("`"), changed.split(", ")) for name, default, changed in found}


def objects(rendered) -> dict[str, Any]:
    """Return the objects by kind and name, without the checksums that restart pods where a map has changed."""
    found = {}
    for item in (*rendered.objects, *rendered.hooks):
        notes = item.get("spec", {}).get("template", {}).get("metadata", {}).get("annotations", {})
        for key in [key for key in notes if key.startswith("checksum/")]:
            del notes[key]
        found[f"{item['kind']} {item['metadata']['name'].removeprefix('gnnflow-')}"] = item
    return found


def parts(value):
    """Yield the plain values within a value."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from parts(each)
    else:
        yield value


def below(name: str) -> dict[str, Any]:
    set_first = {}
    for start, values in BELOW.items():
        if name == start or name.startswith(f"{start}."):
            set_first |= values
    return {path: value for path, value in set_first.items() if path != name or not name.endswith(".enabled")}


@pytest.fixture(scope="module")
def rendered_flat(render):
    """Render flat values, each set of them once."""
    done: dict[str, Any] = {}

    def flat(values):
        key = json.dumps(values, sort_keys=True)
        if key not in done:
            done[key] = objects(render(nested(values)))
        return done[key]

    return flat


def test_table_has_every_value_with_its_default():
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    table = rows()
    said = {name: value for name, value in leaves(defaults) if name.partition(".")[0] not in {"airflow", "gpuWorkers"}}
    assert list(table) == list(said) == list(OTHER)
    assert {name: table[name][0] for name in said} == {name: json.dumps(value) for name, value in said.items()}
    assert list(leaves(defaults["gpuWorkers"])) != []
    assert defaults["gpuWorkers"].keys() == defaults["workers"].keys()


@pytest.mark.parametrize("name", OTHER)
def test_value_changes_what_its_row_says(rendered_flat, name):
    before, after = rendered_flat(below(name)), rendered_flat({**below(name), name: OTHER[name]})
    changed = {which for which in before.keys() | after.keys() if before.get(which) != after.get(which)}
    assert changed == {which for each in rows()[name][1] for which in _MEANT.get(each, (each,))}
    shown = json.dumps([after[which] for which in changed if which in after])
    for part in parts(OTHER[name]):
        if not isinstance(part, bool) and name != "workspace.kind":  # it chooses, and is nowhere itself
            assert json.dumps(part).strip('"') in shown, part


def test_a_changed_variable_restarts_the_pods_that_read_it(render):
    def sums(values):
        return [item["spec"]["template"]["metadata"]["annotations"] for item in render(values).of_kind("Deployment")]

    for before, after in zip(sums({}), sums({"environment": {"GNNFLOW_RETRIES": "5"}}), strict=True):
        assert before["checksum/environment"] != after["checksum/environment"]
