"""The network policies, asked about each pair of pods as a network plugin does: only what is needed is open."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from itertools import product

import pytest

from tests.helm.conftest import EVERYTHING_ON, WITHOUT_HELM, merged

pytestmark = pytest.mark.helm
pytest.importorskip("helm_sdkpy", reason=WITHOUT_HELM)

OURS = {"app.kubernetes.io/name": "gnnflow", "app.kubernetes.io/instance": "gnnflow"}
HERE = {"kubernetes.io/metadata.name": "graphs"}
# Pods as (labels of the namespace, labels of the pod).
PODS = {
    "scheduler": (HERE, {**OURS, "app.kubernetes.io/component": "dask-scheduler"}),
    "worker": (HERE, {**OURS, "app.kubernetes.io/component": "dask-worker"}),
    "gpu worker": (HERE, {**OURS, "app.kubernetes.io/component": "dask-gpu-worker"}),
    "test": (HERE, {**OURS, "app.kubernetes.io/component": "test"}),
    **{
        f"airflow's {component}": (HERE, {"tier": "airflow", "release": "gnnflow", "component": component})
        for component in ("scheduler", "worker", "triggerer", "api-server", "dag-processor", "statsd", "pgbouncer")
    },
    "other airflow": (HERE, {"tier": "airflow", "release": "other", "component": "triggerer"}),
    "notebook": ({"team": "research"}, {"app": "notebook"}),
    "prometheus": ({"team": "operators"}, {"app": "prometheus"}),
    "their notebook": ({"team": "sales"}, {"app": "notebook"}),
    "neighbour": (HERE, {"app": "web"}),
    "copy": ({"kubernetes.io/metadata.name": "elsewhere"}, {**OURS, "app.kubernetes.io/component": "dask-worker"}),
    "dns": ({"kubernetes.io/metadata.name": "kube-system"}, {"k8s-app": "kube-dns"}),
}
PORTS = (22, 53, 80, 443, 5432, 8080, *range(8785, 8792), 9102, 32767, 32768, 45000, 60999, 61000)
RANKS = {8788, 32768, 45000, 60999}
WORKERS = ("worker", "gpu worker")


def selects(selector, labels) -> bool:
    """Return whether a label selector chooses; an empty one chooses everything."""
    assert selector.keys() <= {"matchLabels", "matchExpressions"}
    for rule in selector.get("matchExpressions", ()):
        assert rule["operator"] == "In"
        if labels.get(rule["key"]) not in rule["values"]:
            return False
    return selector.get("matchLabels", {}).items() <= labels.items()


def is_peer(peer, other) -> bool:
    """Return whether a rule's peer is the other side: a pod, or an address."""
    if isinstance(other, str):
        block = peer.get("ipBlock")
        return (
            bool(block)
            and ip_address(other) in ip_network(block["cidr"])
            and not any(ip_address(other) in ip_network(each) for each in block.get("except", ()))
        )
    namespace, labels = other
    if "ipBlock" in peer:
        return False  # of addresses outside the cluster
    is_near = selects(peer["namespaceSelector"], namespace) if "namespaceSelector" in peer else namespace == HERE
    return is_near and selects(peer.get("podSelector", {}), labels)


def is_open(policies, pod, other, port, *, way, protocol="TCP") -> bool:
    """Return whether a pod's policies let it talk to another (Egress), or be talked to (Ingress)."""
    if isinstance(pod, str):
        return True
    namespace, labels = pod
    own = [
        item["spec"]
        for item in policies
        if namespace == HERE and way in item["spec"]["policyTypes"] and selects(item["spec"]["podSelector"], labels)
    ]
    side = {"Ingress": "from", "Egress": "to"}[way]
    return not own or any(
        (side not in rule or any(is_peer(peer, other) for peer in rule[side]))
        and any(
            each["protocol"] == protocol and each["port"] <= port <= each.get("endPort", each["port"])
            for each in rule["ports"]
        )
        for spec in own
        for rule in spec[way.lower()]
    )


def connects(policies, source, target, port, **how) -> bool:
    return is_open(policies, source, target, port, way="Egress", **how) and is_open(
        policies, target, source, port, way="Ingress", **how
    )


def test_only_needed_ports_are_open_between_pods(rendered_sets):
    policies = rendered_sets["everything on"].of_kind("NetworkPolicy")
    expected = {
        ("test", "scheduler"): {8786},
        **{(f"airflow's {each}", "scheduler"): {8786, 8787} for each in ("scheduler", "worker", "triggerer")},
        ("notebook", "scheduler"): {8786, 8787},
        ("prometheus", "scheduler"): {8787},
    }
    for worker in WORKERS:
        expected |= {
            (worker, "scheduler"): {8786},
            ("scheduler", worker): {8788, 8789, 8790},
            ("prometheus", worker): {8790},
            **{(worker, other): RANKS for other in WORKERS},
        }
    ours = ("scheduler", *WORKERS, "test")
    found = {
        (source, target): {port for port in PORTS if connects(policies, PODS[source], PODS[target], port)}
        for source, target in product(PODS, PODS)
        if target in ours or (source in ours and target != "dns")
    }
    assert {pair: ports for pair, ports in found.items() if ports} == expected


def test_nobody_but_our_pods_comes_in_by_default(rendered_sets):
    policies = rendered_sets["defaults"].of_kind("NetworkPolicy")
    ours = ("scheduler", *WORKERS, "test")
    for source, target in product(PODS.keys() - ours, ours):
        assert [port for port in PORTS if connects(policies, PODS[source], PODS[target], port)] == [], source


def test_outwards_are_names_and_for_those_that_store_the_listed_addresses(render):
    rendered = render(merged(EVERYTHING_ON, {"ownFiles": {"git": {"repository": ""}}}))
    policies = rendered.of_kind("NetworkPolicy")
    addresses = ("10.2.3.4", "10.1.2.3", "169.254.169.254", "192.0.2.1")
    for name in ("scheduler", *WORKERS, "test"):
        pod = PODS[name]
        reached = {(where, port) for where, port in product(addresses, PORTS) if connects(policies, pod, where, port)}
        assert reached == (set() if name == "scheduler" else {("10.2.3.4", 443)}), name
        for protocol in ("UDP", "TCP"):
            for where in (PODS["dns"], "169.254.20.10"):
                open_ports = {port for port in PORTS if connects(policies, pod, where, port, protocol=protocol)}
                assert open_ports == {53}, name


def test_scheduler_fetches_its_own_files(rendered_sets):
    policies = rendered_sets["everything on"].of_kind("NetworkPolicy")
    assert connects(policies, PODS["scheduler"], "10.2.3.4", 443)
