"""What the chart promises of every set of example values."""

from __future__ import annotations

import json
import re
import shutil
from urllib.parse import urlencode

import pytest
import yaml

from tests.helm.conftest import CHART, SETS, WITHOUT_HELM, merged
from tests.helm.operators import SCHEMAS

pytestmark = pytest.mark.helm
pytest.importorskip("helm_sdkpy", reason=WITHOUT_HELM)

KUBERNETES = ("1.29", "1.37")  # the oldest that Chart.yaml accepts, and the newest with schemas
_INFO = 1  # Helm's severities: 1 info, 2 warning, 3 error


def pods(rendered):
    """Every pod's specification, with the name of what makes it."""
    for item in (*rendered.of_kind("Deployment"), *rendered.of_kind("Pod")):
        spec = item["spec"]["template"]["spec"] if item["kind"] == "Deployment" else item["spec"]
        yield item["metadata"]["name"], spec


def containers(rendered):
    for name, pod in pods(rendered):
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            yield f"{name}/{container['name']}", container


@pytest.fixture(scope="session")
def with_airflow(render, tmp_path_factory):
    """A copy of the chart with a chart in Airflow's place that shows the values it was given.

    The official chart comes from `helm dependency update`, which needs the network; its own templates are not tested
    here.
    """
    chart = shutil.copytree(CHART, tmp_path_factory.mktemp("chart") / "gnnflow")
    templates = chart / "charts" / "airflow" / "templates"
    templates.mkdir(parents=True)
    (templates.parent / "Chart.yaml").write_text("{apiVersion: v2, name: airflow, version: 1.22.0, icon: file://none}")
    (templates / "values.yaml").write_text(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: airflow-values},"
        " data: {values: {{ toJson .Values | quote }}, environment: {{ tpl .Values.extraEnvFrom . | quote }}}}"
    )
    return chart


def test_chart_lints(with_airflow):
    from tests.helm import engine

    found = engine.lint(with_airflow)
    assert found["TotalChartsLinted"] == 1
    assert not found["Errors"]
    assert [message for message in found["Messages"] if message["Severity"] > _INFO] == []


@pytest.mark.parametrize("version", KUBERNETES)
def test_every_object_is_valid_for_kubernetes(rendered, version):
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    jsonschema = pytest.importorskip("jsonschema")
    assert rendered.objects
    for item in (*rendered.objects, *rendered.hooks):
        if item["kind"] in SCHEMAS:
            jsonschema.validate(item, SCHEMAS[item["kind"]])
        else:
            assert kubernetes_validate.validate(item, version, strict=True) == version


def test_operators_of_others_are_not_needed_by_default(rendered_sets):
    for name in ("defaults", "laptop", "eks", "gpu", "everything off"):
        assert SCHEMAS.keys().isdisjoint(item["kind"] for item in rendered_sets[name].objects), name
    assert {item["kind"] for item in rendered_sets["everything on"].objects} >= SCHEMAS.keys()


def test_no_two_objects_share_a_name(rendered):
    names = [(item["kind"], item["metadata"]["name"]) for item in (*rendered.objects, *rendered.hooks)]
    assert len(set(names)) == len(names)


def test_pods_run_without_root_token_or_writable_root(rendered):
    for name, pod in pods(rendered):
        context = pod["securityContext"]
        assert context["runAsNonRoot"] is True, name
        assert context["runAsUser"] > 0, name
        assert context["runAsGroup"] > 0, name
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False, name
    for name, container in containers(rendered):
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True, name
        assert context["allowPrivilegeEscalation"] is False, name
        assert context["capabilities"] == {"drop": ["ALL"]}, name
        assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}, name


def test_containers_have_resources_and_those_that_stay_have_probes(rendered):
    for name, container in containers(rendered):
        for side in ("requests", "limits"):
            assert {"cpu", "memory"} <= container["resources"][side].keys(), name
    for item in rendered.of_kind("Deployment"):
        for container in item["spec"]["template"]["spec"]["containers"]:
            assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys(), item["metadata"]["name"]
            ports = {port["name"] for port in container["ports"]}
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                (target,) = (how["port"] for how in container[probe].values() if isinstance(how, dict))
                assert target in ports


def test_all_pods_have_one_image(rendered):
    images = {container["image"] for name, container in containers(rendered) if not name.endswith("/own-git")}
    assert len(images) == 1


def test_selectors_find_the_pods_they_mean(rendered):
    labels = {
        item["metadata"]["name"]: item["spec"]["template"]["metadata"]["labels"]
        for item in rendered.of_kind("Deployment")
    }

    def chosen(selector):
        return [name for name, has in labels.items() if selector.items() <= has.items()]

    for item in (*rendered.of_kind("Deployment"), *rendered.of_kind("PodDisruptionBudget")):
        assert chosen(item["spec"]["selector"]["matchLabels"]) == [item["metadata"]["name"]]
    for item in (*rendered.of_kind("HorizontalPodAutoscaler"), *rendered.of_kind("ScaledObject")):
        assert item["spec"]["scaleTargetRef"]["name"] in labels
    services = rendered.of_kind("Service")
    for item in services:
        assert chosen(item["spec"]["selector"]) == [item["metadata"]["name"]]
    ports = {port["name"] for item in services for port in item["spec"]["ports"]}
    for item in rendered.of_kind("ServiceMonitor"):
        wanted = item["spec"]["selector"]["matchLabels"]
        if "tier" not in wanted:  # the other one is for a Service of Airflow's chart
            assert all(wanted.items() <= each["metadata"]["labels"].items() for each in services)
            assert {endpoint["port"] for endpoint in item["spec"]["endpoints"]} <= ports
    for item in rendered.of_kind("Ingress"):
        (path,) = item["spec"]["rules"][0]["http"]["paths"]
        assert path["backend"]["service"]["name"] in labels
        assert path["backend"]["service"]["port"]["name"] in ports


def test_what_is_mounted_exists_and_what_exists_is_mounted(rendered):
    maps = {item["metadata"]["name"] for item in rendered.of_kind("ConfigMap")} | {"my-configs"}
    claims = {item["metadata"]["name"] for item in rendered.of_kind("PersistentVolumeClaim")} | {"tables"}
    for name, pod in pods(rendered):
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert len(volumes) == len(pod["volumes"]), name
        every = [*pod["containers"], *pod.get("initContainers", ())]
        assert {mount["name"] for container in every for mount in container["volumeMounts"]} == volumes.keys(), name
        for container in every:
            paths = [mount["mountPath"] for mount in container["volumeMounts"]]
            assert len(set(paths)) == len(paths), name
            sources = container.get("envFrom", ())
            assert {source["configMapRef"]["name"] for source in sources if "configMapRef" in source} <= maps
        for volume in volumes.values():
            assert volume.get("configMap", {"name": "gnnflow-scripts"})["name"] in maps
            assert volume.get("persistentVolumeClaim", {"claimName": None})["claimName"] in {None, *claims}


@pytest.mark.parametrize("name", ["eks with operators", "laptop with own files", "everything on"])
def test_folders_that_variables_name_are_mounted(rendered_sets, name):
    rendered = rendered_sets[name]
    data = rendered.one("ConfigMap", "gnnflow-environment")["data"]
    named = {value for key, value in data.items() if value.startswith("/") and key not in {"HOME", "PYTHONPATH"}}
    named |= set(data.get("PYTHONPATH", "/tmp").split(":"))
    for item in rendered.of_kind("Deployment"):
        (container,) = item["spec"]["template"]["spec"]["containers"]
        mounted = tuple(mount["mountPath"] for mount in container["volumeMounts"])
        assert [path for path in named if not path.startswith(mounted)] == []


def test_no_secret_is_made_or_held(rendered):
    assert rendered.of_kind("Secret") == []
    for name, container in containers(rendered):
        for variable in container.get("env", ()):
            assert not re.search("SECRET|PASSWORD|TOKEN|ACCESS_KEY", variable["name"]), name


def test_own_variables_come_before_the_charts(render):
    environment = {"GNNFLOW_DASK_ADDRESS": "tcp://elsewhere:8786", "GNNFLOW_RETRIES": "5"}
    data = render({"environment": environment}).one("ConfigMap", "gnnflow-environment")["data"]
    assert environment.items() <= data.items()
    assert data["GNNFLOW_WORKSPACE"] == "/workspace"


def test_secrets_are_given_by_name(render):
    bucket = {"uri": "s3://some-bucket/runs", "existingSecret": "bucket-keys"}
    rendered = render({"workspace": {"kind": "bucket", "bucket": bucket}, "environmentSecrets": ["mlflow"]})
    for _, container in containers(rendered):
        assert [source["secretRef"]["name"] for source in container["envFrom"] if "secretRef" in source] == [
            "bucket-keys",
            "mlflow",
        ]


def test_bucket_needs_no_volume(rendered_sets):
    rendered = rendered_sets["eks"]
    assert rendered.of_kind("PersistentVolumeClaim") == []
    assert rendered.one("ConfigMap", "gnnflow-environment")["data"]["GNNFLOW_WORKSPACE"] == "s3://my-bucket/gnnflow"
    account = rendered.one("ServiceAccount", "gnnflow-gnnflow")
    assert "eks.amazonaws.com/role-arn" in account["metadata"]["annotations"]


def test_gpu_workers_ask_for_gpus_and_tolerate_their_nodes(rendered_sets):
    for name in ("gpu", "eks with gpu"):
        pod = rendered_sets[name].one("Deployment", "gnnflow-dask-gpu-worker")["spec"]["template"]["spec"]
        (worker,) = pod["containers"]
        assert worker["resources"]["limits"]["nvidia.com/gpu"] == 1
        assert "--resources=GPU=1" in worker["args"]
        assert pod["tolerations"][0]["key"] == "nvidia.com/gpu"


def test_autoscaler_owns_the_number_of_workers(rendered_sets):
    rendered = rendered_sets["eks"]
    assert "replicas" not in rendered.one("Deployment", "gnnflow-dask-worker")["spec"]
    scaler = rendered.one("HorizontalPodAutoscaler", "gnnflow-dask-worker")["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 32)


def test_a_worker_has_the_time_its_drain_takes(rendered):
    for item in rendered.of_kind("Deployment"):
        pod = item["spec"]["template"]["spec"]
        for container in pod["containers"]:
            if "lifecycle" in container:
                seconds = int(container["lifecycle"]["preStop"]["exec"]["command"][-1])
                assert pod["terminationGracePeriodSeconds"] > seconds


@pytest.mark.parametrize(
    "values",
    [
        {"metrics": {"serviceMonitor": {"enabled": True}}},
        {"ingress": {"enabled": True, "host": "dask.example.com"}},
        {"workers": {"autoscaling": {"keda": {"enabled": True}}}},
    ],
)
def test_readers_that_no_policy_lets_in_fail_the_install(render, values):
    with pytest.raises(Exception, match=r"networkPolicy\.readers is empty"):
        render(values)
    assert render({**values, "networkPolicy": {"enabled": False}}).objects


@pytest.mark.parametrize("name", SETS)
def test_airflow_is_installed_only_where_it_is_enabled(render, with_airflow, name):
    values = merged(*SETS[name])
    found = render(values, chart=with_airflow).of_kind("ConfigMap")
    given = [item for item in found if item["metadata"]["name"] == "airflow-values"]
    if not values.get("airflow", {}).get("enabled", False):
        assert given == []
        return
    airflow = json.loads(given[0]["data"]["values"])
    assert airflow["airflowVersion"].startswith("3.3.")
    assert airflow["defaultAirflowTag"].startswith("3.3.")
    for key in ("fernetKeySecretName", "apiSecretKeySecretName", "jwtSecretName"):
        assert airflow[key] == "gnnflow-airflow"
    assert airflow["data"] == {"metadataSecretName": "gnnflow-airflow"}
    (source,) = yaml.safe_load(given[0]["data"]["environment"])
    (environment,) = (item["data"] for item in found if item["metadata"]["name"] == source["configMapRef"]["name"])
    address = "dask://gnnflow-dask-scheduler.graphs:8786"
    if "existingSecret" in values.get("tls", {}):
        keys = ("tls_ca_file", "ca.crt"), ("tls_client_cert", "tls.crt"), ("tls_client_key", "tls.key")
        address += "/?" + urlencode({key: f"/etc/dask-tls/{file}" for key, file in keys})
    assert environment["AIRFLOW_CONN_DASK_DEFAULT"] == address


def test_release_name_reaches_every_object(render):
    rendered = render({}, release="other")
    for item in (*rendered.objects, *rendered.hooks):
        assert item["metadata"]["name"].startswith("other-")


def test_large_user_ids_stay_whole_numbers(render):
    rendered = render({"podSecurity": {"user": 1000660000, "group": 1000660000}})
    for _, pod in pods(rendered):
        assert pod["securityContext"]["runAsUser"] == 1000660000


def test_notes_say_what_to_do_next(rendered_sets):
    assert "helm -n graphs test gnnflow" in rendered_sets["defaults"].notes
    assert "gnnflow run CONFIG.yaml" in rendered_sets["defaults"].notes
    assert "port-forward service/gnnflow-api-server" in rendered_sets["laptop"].notes


@pytest.mark.parametrize(
    ("files", "lost"),
    [
        (("laptop",), ""),
        (("laptop", "own-files"), ""),
        (("eks", "tls", "own-files"), ""),
        (("laptop", "tls"), "the volume claim gnnflow-workspace"),
        (("tls", "laptop"), "the Secret gnnflow-dask-tls"),
    ],
)
def test_a_volume_that_airflow_lost_to_another_file_of_values_is_said(render, files, lost):
    found = re.findall(r"Airflow's pods do not mount (.*?)\. Helm does not merge lists", render(merged(*files)).notes)
    assert found == ([lost] if lost else [])


@pytest.mark.parametrize("revision", ["", "HEAD"])
def test_a_revision_that_moves_is_refused(render, revision):
    git = {"repository": "https://example.com/graphs"}
    with pytest.raises(Exception, match=r"ownFiles\.git\.revision names no tag or commit"):
        render({"ownFiles": {"git": {**git, "revision": revision}}})
    assert "If that is a branch, it moves" in render({"ownFiles": {"git": {**git, "revision": "main"}}}).notes
    assert "If that is a branch" not in render({"ownFiles": {"git": {**git, "revision": "0" * 40}}}).notes


def test_pods_serve_others_and_allow_what_the_values_say(render):
    closed = render({}).one("ConfigMap", "gnnflow-environment")["data"]
    assert (closed["GNNFLOW_SERVICE"], closed["GNNFLOW_MODULES"]) == ("1", "")
    assert "GNNFLOW_ENV_ALLOW" not in closed
    allowed = {"modules": ["mine.layers", "ours"], "variables": ["TEAM_*"], "urls": ["s3://my-bucket/"]}
    opened = render({"allowed": allowed}).one("ConfigMap", "gnnflow-environment")["data"]
    assert opened["GNNFLOW_MODULES"] == "mine.layers ours"
    assert (opened["GNNFLOW_ENV_ALLOW"], opened["GNNFLOW_ALLOWED_URLS"]) == ("TEAM_*", "s3://my-bucket/")
