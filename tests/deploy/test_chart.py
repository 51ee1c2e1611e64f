"""The Helm chart, linted and rendered by Helm's own code, and held against Kubernetes' schemas.

What it sets must exist in respool: options, variables, paths and ports.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from respool.cli import main
from respool.config import from_env
from respool.policy import Policy
from respool.proxy.app import HEALTH, METRICS, READY
from respool.proxy.server_options import PORT

helm = pytest.importorskip("helm_python", reason="Helm's library has no wheel for this machine")
kubernetes = pytest.importorskip("kubernetes_validate")

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "respool"
DEFAULT: dict[str, Any] = {"secret": {"name": "credentials"}}
SETTINGS = 'preset = "lean"\n\n[tools.fetch]\nreads = ["url"]\n'
ALL: dict[str, Any] = {
    **DEFAULT,
    "settings": SETTINGS,
    "upstreams": {"openai": "https://gateway.example/v1", "anthropic": "http://inner:80"},
    "extraArgs": ["--deadline=5"],
    "extraEnv": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4318"}],
    "autoscaling": {"enabled": True},
    "networkPolicy": {
        "enabled": True,
        "from": [{"namespaceSelector": {"matchLabels": {"agents": "yes"}}}],
    },
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "imagePullSecrets": [{"name": "registry"}],
    "podAnnotations": {"a": "b"},
    "podLabels": {"team": "platform"},
    "service": {"annotations": {"c": "d"}},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "agents", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
}
ONLY_WHEN_ASKED = {"ConfigMap", "HorizontalPodAutoscaler", "NetworkPolicy", "ServiceMonitor"}
ALWAYS = {"Deployment", "Service", "ServiceAccount", "PodDisruptionBudget"}
VERSIONS = ("1.27", "1.31", kubernetes.latest_version())


def rendered(values: dict[str, Any], name: str = "prod") -> dict[str, Any]:
    """The manifests by kind."""
    with helm.Chart.load(CHART) as chart:
        texts = chart.render(values, name=name, namespace="agents")
    found = [yaml.safe_load(text) for path, text in texts.items() if path.endswith(".yaml")]
    return {one["kind"]: one for one in found if one}


def container(values: dict[str, Any]) -> dict[str, Any]:
    (found,) = rendered(values)["Deployment"]["spec"]["template"]["spec"]["containers"]
    return cast(dict[str, Any], found)


@pytest.mark.parametrize("values", [DEFAULT, ALL], ids=["default", "all"])
def test_the_chart_is_linted_and_its_manifests_are_valid(values: dict[str, Any]):
    report = helm.lint(CHART, values, strict=True)
    assert report["errors"] == []
    assert [one for one in report["messages"] if one["severity"] > 1] == []
    manifests = rendered(values)
    assert manifests.keys() == (ALWAYS if values is DEFAULT else ALWAYS | ONLY_WHEN_ASKED)
    for kind, manifest in manifests.items():
        if kind != "ServiceMonitor":  # a custom resource: no schema of Kubernetes' own
            for version in VERSIONS:
                kubernetes.validate(manifest, version, strict=True)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "secret.name"),
        ({**DEFAULT, "replicas": 0}, "replicas"),
        ({**DEFAULT, "upstreams": {"openai": "gateway"}}, "upstreams"),
        ({**DEFAULT, "upstreams": {"opnai": "https://x"}}, "opnai"),
        ({"secret": {"name": "a", "token": "plain"}}, "secret"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any], said: str):
    with helm.Chart.load(CHART) as chart, pytest.raises(helm.HelmError, match=said):
        chart.render(values, name="prod")


def test_a_broken_template_is_found(tmp_path: Path):
    """The measure can fail: at an unknown field, and at a template that ends early."""
    broken = shutil.copytree(CHART, tmp_path / "respool")
    service = broken / "templates" / "service.yaml"
    service.write_text(service.read_text() + "{{ if }}")
    assert helm.lint(broken, DEFAULT)["errors"] or [
        one for one in helm.lint(broken, DEFAULT)["messages"] if one["severity"] > 2
    ]
    manifest = rendered(DEFAULT)["Service"]
    manifest["spec"]["portz"] = []
    with pytest.raises(kubernetes.ValidationError):
        kubernetes.validate(manifest, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("values", [DEFAULT, ALL], ids=["default", "all"])
def test_its_options_and_variables_are_respools(values: dict[str, Any], tmp_path: Path):
    made = container(values)
    command, *options = made["args"]
    serve = main.commands[command]
    policy = tmp_path / "respool.toml"
    if "settings" in values:
        policy.write_text(rendered(values)["ConfigMap"]["data"]["respool.toml"])
        assert policy.read_text().strip() == SETTINGS.strip()
        assert Policy.from_toml(policy).tools
    options = [one.replace("/etc/respool/respool.toml", str(policy)) for one in options]
    found = serve.make_context("serve", list(options)).params
    assert (found["host"], found["port"], found["shared_store"]) == ("0.0.0.0", PORT, True)
    if values is ALL:
        assert found["deadline"] == 5.0
        assert "openai=https://gateway.example/v1" in found["upstreams"]
    variables = {one["name"]: one for one in made["env"]}
    assert from_env(dict.fromkeys(variables, "1")) == Policy()  # none is unknown
    for name, key in (("RESPOOL_TOKEN", "admin-token"), ("RESPOOL_STORE", "store-url")):
        ref = variables[name]["valueFrom"]["secretKeyRef"]
        assert ref == {"name": "credentials", "key": key}
        assert "value" not in variables[name]


def test_probes_ask_paths_that_exist_and_the_grace_covers_notice_and_drain():
    made = container(DEFAULT)
    assert made["livenessProbe"]["httpGet"]["path"] == HEALTH
    assert made["startupProbe"]["httpGet"]["path"] == HEALTH
    assert made["readinessProbe"]["httpGet"]["path"] == READY
    assert made["ports"] == [{"name": "http", "containerPort": PORT}]
    pod = rendered(DEFAULT)["Deployment"]["spec"]["template"]["spec"]
    given = dict(one.removeprefix("--").split("=") for one in made["args"] if "=" in one)
    ending = int(given["notice"]) + int(given["drain"])
    assert pod["terminationGracePeriodSeconds"] > ending
    # Before a pod ends, every balancer has seen that it is not ready.
    probe = made["readinessProbe"]
    assert int(given["notice"]) > probe["periodSeconds"] * probe["failureThreshold"]
    assert pod["enableServiceLinks"] is False
    strategy = rendered(DEFAULT)["Deployment"]["spec"]["strategy"]["rollingUpdate"]
    assert strategy["maxUnavailable"] == 0


def test_pods_have_no_more_rights_than_they_need():
    pod = rendered(DEFAULT)["Deployment"]["spec"]["template"]["spec"]
    (made,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    own = made["securityContext"]
    assert (own["readOnlyRootFilesystem"], own["allowPrivilegeEscalation"]) == (True, False)
    assert own["capabilities"]["drop"] == ["ALL"]


def test_selectors_meet_the_pods_and_settings_restart_them():
    found = rendered(ALL)
    template = found["Deployment"]["spec"]["template"]
    labels = template["metadata"]["labels"]
    for chosen in (
        found["Deployment"]["spec"]["selector"]["matchLabels"],
        found["Service"]["spec"]["selector"],
        found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ):
        assert chosen.items() <= labels.items()
    assert found["ServiceMonitor"]["spec"]["selector"]["matchLabels"].items() <= (
        found["Service"]["metadata"]["labels"].items()
    )
    assert found["ServiceMonitor"]["spec"]["endpoints"][0]["path"] == METRICS
    target = found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert target["name"] == found["Deployment"]["metadata"]["name"]
    assert "replicas" not in found["Deployment"]["spec"]  # the autoscaler's
    checksum = hashlib.sha256(SETTINGS.encode()).hexdigest()
    assert template["metadata"]["annotations"]["checksum/settings"] == checksum
