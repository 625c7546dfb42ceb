"""The schema of the chart's values: everything that can be set is described, and nothing else is accepted."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.helm.conftest import CHART, SETS, merged

pytestmark = pytest.mark.helm

# Helm adds `global` to every chart's values; `airflow` has a schema in its own chart.
_OPEN = {"global", "airflow"}
# Parts of a pod's specification, which Kubernetes itself checks.
_KUBERNETES = "kubernetes"


@pytest.fixture(scope="module")
def schema():
    return json.loads((CHART / "values.schema.json").read_text())


@pytest.fixture(scope="module")
def defaults():
    return yaml.safe_load((CHART / "values.yaml").read_text())


def misspelt(values, path=()):
    """Every way of misspelling one key of the values, as (path, values with that key only)."""
    for key, value in values.items():
        if path or key not in _OPEN:
            wrong = {f"{key}x": value}
            for outer in reversed(path):
                wrong = {outer: wrong}
            yield ".".join((*path, key)), wrong
            if isinstance(value, dict):
                yield from misspelt(value, (*path, key))


def objects(schema, path=""):
    """Every description of an object in a schema, with where it is."""
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield path, schema
        for key, value in schema.items():
            if key not in {"if", "then"}:  # they narrow an object that is described beside them
                yield from objects(value, f"{path}/{key}")


def test_every_object_in_the_schema_is_closed(schema):
    for path, described in objects(schema):
        if path.rpartition("/")[2] not in {*_OPEN, _KUBERNETES}:
            rest = described["additionalProperties"]
            assert rest is False or rest.get("type") in {"string", "number"} or "$ref" in rest, path


def test_every_misspelt_key_is_refused(schema, defaults):
    validator = pytest.importorskip("jsonschema").Draft7Validator(schema)
    wrong = dict(misspelt(defaults))
    # Keys of free maps (labels, variables, Dask's resources) are the user's own.
    free = {path for path in wrong if path.rpartition(".")[0].endswith(("daskResources", "namespaceLabels"))}
    free |= {path for path in wrong if "namespaceLabels." in path}
    accepted = {path for path, values in wrong.items() if validator.is_valid(values)}
    assert len(wrong) > 100
    assert accepted == free


def test_defaults_and_examples_are_accepted(schema, defaults):
    validator = pytest.importorskip("jsonschema").Draft7Validator(schema)
    for values in (defaults, *(merged(*files) for files in SETS.values())):
        assert list(validator.iter_errors(values)) == []


def test_schema_describes_exactly_what_has_a_default(schema, defaults):
    def compare(described, values, path):
        if "$ref" in described:
            described = schema["definitions"][described["$ref"].rpartition("/")[2]]
        if described.get("additionalProperties") is False and path.rpartition(".")[2] not in {"requests", "limits"}:
            assert described["properties"].keys() - _OPEN == values.keys() - _OPEN, path
            for key in values.keys() - _OPEN:
                if isinstance(values[key], dict):
                    compare(described["properties"][key], values[key], f"{path}.{key}")

    compare(schema, defaults, "")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"worker": {"replicas": 3}}, "worker"),
        ({"workers": {"replica": 3}}, "replica"),
        ({"workers": {"autoscaling": {"maxReplica": 3}}}, "maxReplica"),
        ({"gpuWorkers": {"resources": {"limits": {"nvidia.com/gpus": 1}}}}, "nvidia.com/gpus"),
        ({"workspace": {"kind": "buckets"}}, "kind"),
        ({"workspace": {"kind": "bucket"}}, "uri"),
        ({"workspace": {"kind": "bucket", "bucket": {"uri": "s3://key:password@bucket"}}}, "uri"),
        ({"workspace": {"bucket": {"accessKey": "AKIA"}}}, "accessKey"),
        ({"environment": {"AWS_SECRET_ACCESS_KEY": "planted"}}, "AWS_SECRET_ACCESS_KEY"),
        ({"workers": {"replicas": "three"}}, "replicas"),
        ({"workers": {"scratch": "10GB"}}, "scratch"),
        ({"podSecurity": {"user": 0}}, "user"),
        ({"ingress": {"enabled": True}}, "host"),
        ({"ownFiles": {"git": {"repository": "https://me:password@example.com/graphs"}}}, "repository"),
        ({"workers": {"extraEnv": [{"name": "API_TOKEN", "value": "planted"}]}}, "extraEnv"),
        ({"workers": {"autoscaling": {"minReplicas": 0}}}, "minReplicas"),
        ({"networkPolicy": {"readers": {"prometheus": {}}}}, "podLabels"),
    ],
)
def test_helm_refuses_what_the_schema_does_not_know(render, values, said):
    with pytest.raises(Exception, match=said) as raised:
        render(values)
    assert "schema" in str(raised.value)
    assert "planted" not in str(raised.value)
