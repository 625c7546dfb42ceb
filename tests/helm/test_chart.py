"""What the chart promises of every set of example values."""

from __future__ import annotations

import json
import re
import shutil

import pytest
import yaml

from tests.helm.conftest import CHART, SETS, WITHOUT_HELM, merged

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
def with_airflow(tmp_path_factory):
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
    assert rendered.objects
    for item in (*rendered.objects, *rendered.hooks):
        assert kubernetes_validate.validate(item, version, strict=True) == version


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
    assert len({container["image"] for _, container in containers(rendered)}) == 1


def test_selectors_find_the_pods_they_mean(rendered):
    labels = {
        item["metadata"]["name"]: item["spec"]["template"]["metadata"]["labels"]
        for item in rendered.of_kind("Deployment")
    }

    def chosen(selector):
        return [name for name, has in labels.items() if selector.items() <= has.items()]

    for item in (*rendered.of_kind("Deployment"), *rendered.of_kind("PodDisruptionBudget")):
        assert chosen(item["spec"]["selector"]["matchLabels"]) == [item["metadata"]["name"]]
    for item in rendered.of_kind("HorizontalPodAutoscaler"):
        assert item["spec"]["scaleTargetRef"]["name"] in labels
    assert chosen(rendered.one("Service", "gnnflow-dask-scheduler")["spec"]["selector"]) == ["gnnflow-dask-scheduler"]
    policy = rendered.one("NetworkPolicy", "gnnflow-gnnflow")["spec"]
    assert sorted(chosen(policy["podSelector"]["matchLabels"])) == sorted(labels)


def test_what_is_mounted_exists(rendered):
    maps = {item["metadata"]["name"] for item in rendered.of_kind("ConfigMap")}
    claims = {item["metadata"]["name"] for item in rendered.of_kind("PersistentVolumeClaim")}
    for name, pod in pods(rendered):
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for container in pod["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys(), name
            assert {
                source["configMapRef"]["name"] for source in container["envFrom"] if "configMapRef" in source
            } <= maps
        for volume in volumes.values():
            assert volume.get("configMap", {"name": "gnnflow-scripts"})["name"] in maps
            assert volume.get("persistentVolumeClaim", {"claimName": None})["claimName"] in {None, *claims}


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


@pytest.mark.parametrize("airflow", [True, False])
def test_only_named_clients_reach_the_scheduler(render, airflow):
    client = {"namespaceLabels": {"team": "graphs"}, "podLabels": {"app": "notebook"}}
    rendered = render({"airflow": {"enabled": airflow}, "networkPolicy": {"clients": [client]}})
    ((rule),) = rendered.one("NetworkPolicy", "gnnflow-dask-clients")["spec"]["ingress"]
    expected = {
        "podSelector": {"matchLabels": {"app": "notebook"}},
        "namespaceSelector": {"matchLabels": {"team": "graphs"}},
    }
    assert rule["from"][-1] == expected
    assert len(rule["from"]) == (2 if airflow else 1)


def test_nobody_is_let_in_by_default(rendered_sets):
    assert rendered_sets["defaults"].one("NetworkPolicy", "gnnflow-dask-clients")["spec"]["ingress"] == []


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
    assert environment["AIRFLOW_CONN_DASK_DEFAULT"] == "dask://gnnflow-dask-scheduler.graphs:8786"


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


def test_pods_serve_others_and_allow_what_the_values_say(render):
    closed = render({}).one("ConfigMap", "gnnflow-environment")["data"]
    assert (closed["GNNFLOW_SERVICE"], closed["GNNFLOW_MODULES"]) == ("1", "")
    assert "GNNFLOW_ENV_ALLOW" not in closed
    allowed = {"modules": ["mine.layers", "ours"], "variables": ["TEAM_*"], "urls": ["s3://my-bucket/"]}
    opened = render({"allowed": allowed}).one("ConfigMap", "gnnflow-environment")["data"]
    assert opened["GNNFLOW_MODULES"] == "mine.layers ours"
    assert (opened["GNNFLOW_ENV_ALLOW"], opened["GNNFLOW_ALLOWED_URLS"]) == ("TEAM_*", "s3://my-bucket/")
