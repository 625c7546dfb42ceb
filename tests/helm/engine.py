"""Renders a chart with Helm itself and no cluster.

The library has no dry run, so Helm installs into a stand-in for the API server on loopback. It claims to know the
kinds a chart may use, takes every object without keeping it, and reads the release record, in which Helm stores what
it rendered.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import helm_sdkpy
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

KINDS = {
    "v1": ["ConfigMap", "PersistentVolumeClaim", "Pod", "Secret", "Service", "ServiceAccount"],
    "apps/v1": ["Deployment", "StatefulSet"],
    "autoscaling/v2": ["HorizontalPodAutoscaler"],
    "batch/v1": ["CronJob", "Job"],
    "keda.sh/v1alpha1": ["ScaledObject"],
    "monitoring.coreos.com/v1": ["ServiceMonitor"],
    "networking.k8s.io/v1": ["Ingress", "NetworkPolicy"],
    "policy/v1": ["PodDisruptionBudget"],
    "rbac.authorization.k8s.io/v1": ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
}
_VERBS = ["create", "delete", "get", "list", "patch", "update"]
_GZIPPED = re.compile(rb"H4sI[\w+/]+=*")  # base64 of a gzip header: the release record inside its Secret


@dataclass(frozen=True)
class Rendered:
    """What one install would create."""

    objects: tuple[dict[str, Any], ...]
    hooks: tuple[dict[str, Any], ...]
    notes: str

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Objects of one kind, hooks included."""
        return [item for item in (*self.objects, *self.hooks) if item["kind"] == kind]

    def one(self, kind: str, name: str) -> dict[str, Any]:
        """Return the one object of this kind and name."""
        (found,) = (item for item in self.of_kind(kind) if item["metadata"]["name"] == name)
        return found


def render(chart: Path, values: Mapping[str, Any], *, release: str = "gnnflow", namespace: str = "graphs") -> Rendered:
    """Return what `helm install` makes of the chart and the values. Raises helm_sdkpy.InstallError as Helm does."""
    with _stand_in() as server:
        configuration = helm_sdkpy.Configuration(namespace=namespace, kubeconfig=_kubeconfig(server))
        install = helm_sdkpy.Install(configuration).run(
            release, str(chart), values=dict(values), wait=False, timeout=60
        )
        asyncio.run(install)
        record = server.records[-1]
    return Rendered(
        objects=tuple(_documents(record["manifest"])),
        hooks=tuple(item for hook in record.get("hooks") or () for item in _documents(hook["manifest"])),
        notes=record["info"]["notes"],
    )


def lint(chart: Path) -> dict[str, Any]:
    """Return what `helm lint` says of the chart with its default values."""
    return asyncio.run(helm_sdkpy.Lint(helm_sdkpy.Configuration()).run(str(chart)))


def _documents(text: str) -> Iterator[dict[str, Any]]:
    return (document for document in yaml.safe_load_all(text) if document)


class _Server(ThreadingHTTPServer):
    request_queue_size = 64  # Helm asks for all groups at once, and tries a dropped connection again after a second
    records: list[dict[str, Any]]


@contextmanager
def _stand_in() -> Iterator[_Server]:
    server = _Server(("127.0.0.1", 0), _Answers)
    server.records = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _kubeconfig(server: _Server) -> str:
    address = f"http://127.0.0.1:{server.server_address[1]}"
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "stand-in", "cluster": {"server": address}}],
            "users": [{"name": "nobody", "user": {}}],
            "contexts": [{"name": "stand-in", "context": {"cluster": "stand-in", "user": "nobody"}}],
            "current-context": "stand-in",
        }
    )


def _resources(version: str) -> dict[str, Any]:
    resources = [
        {"name": _plural(kind), "singularName": kind.lower(), "kind": kind, "namespaced": True, "verbs": _VERBS}
        for kind in KINDS[version]
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}


def _plural(kind: str) -> str:
    return f"{kind.lower()[:-1]}ies" if kind.endswith("y") else kind.lower() + ("es" if kind.endswith("s") else "s")


def _groups() -> dict[str, Any]:
    groups = []
    for version in KINDS:
        name, slash, number = version.partition("/")
        if slash:
            served = {"groupVersion": version, "version": number}
            groups.append({"name": name, "versions": [served], "preferredVersion": served})
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def _read(path: str) -> dict[str, Any] | None:
    fixed = {
        "/version": {"major": "1", "minor": "37", "gitVersion": "v1.37.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": _groups(),
        "/api/v1": _resources("v1"),
    }
    if path in fixed:
        return fixed[path]
    if path.removeprefix("/apis/") in KINDS:
        return _resources(path.removeprefix("/apis/"))
    if path.endswith("/secrets"):  # Helm looks for earlier releases
        return {"kind": "SecretList", "apiVersion": "v1", "metadata": {}, "items": []}
    return None


class _Answers(BaseHTTPRequestHandler):
    # HTTP/1.0: an answer ends its connection, which Helm would keep in this process for good.
    wbufsize = -1  # headers and body in one packet: two would wait 40 ms for each other
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        found = _read(self.path.partition("?")[0])
        if found is None:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            self._answer(404, json.dumps(status).encode(), "application/json")
        else:
            self._answer(200, json.dumps(found).encode(), "application/json")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        for packed in _GZIPPED.findall(body):
            self.server.records.append(json.loads(gzip.decompress(base64.b64decode(packed))))
        self._answer(201, body, self.headers["Content-Type"])

    def do_PUT(self) -> None:  # Helm marks the record as deployed
        self.do_POST()

    def _answer(self, code: int, body: bytes, content_type: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""
