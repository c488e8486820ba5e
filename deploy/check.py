#!/usr/bin/env python3
"""Holds manifests to what they promise, and the chart to the base.

usage: check.py RENDERED.yaml [BASE.yaml]

Of RENDERED: budgets below limits, times that follow from each other, probes,
Pod Security. With BASE: that both say the same, but for what only Helm labels.
"""
import re
import sys

import yaml

UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
# Of an idle server; measured 25 MiB with its table cache empty.
PROCESS = 30 * 2**20
HELM_LABELS = {"helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version"}


def size(text):
    number, unit = re.fullmatch(r"(\d+)([A-Za-z]*)", text).groups()
    return int(number) * UNITS[unit]


def seconds(text):
    number, unit = re.fullmatch(r"(\d+)(s|m|h)", text).groups()
    return int(number) * {"s": 1, "m": 60, "h": 3600}[unit]


def read(path):
    """Objects by kind and name; tests of the chart are left out."""
    with open(path, encoding="utf-8") as file:
        objects = [each for each in yaml.safe_load_all(file) if each]
    kept = {}
    for each in objects:
        meta = each["metadata"]
        if "helm.sh/hook" in meta.get("annotations", {}):
            continue
        meta.pop("namespace", None)
        for label in HELM_LABELS:
            meta.get("labels", {}).pop(label, None)
        kept[each["kind"], meta["name"]] = each
    return kept


def differences(one, other, path=""):
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from differences(one.get(key), other.get(key), f"{path}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, pair in enumerate(zip(one, other)):
            yield from differences(*pair, f"{path}[{index}]")
    elif one != other:
        yield f"{path}: {one!r} in the chart, {other!r} in the base"


def faults(objects):
    kinds = {kind for kind, _ in objects}
    for kind in ("Deployment", "Service", "ServiceAccount", "PodDisruptionBudget",
                 "HorizontalPodAutoscaler", "NetworkPolicy"):
        if kind not in kinds:
            yield f"no {kind}"
    headless = [each for (kind, _), each in objects.items()
                if kind == "Service" and each["spec"].get("clusterIP") == "None"]
    if len(headless) != 1 or headless[0]["spec"].get("publishNotReadyAddresses"):
        yield "not one headless Service of ready addresses"
    (deployment,) = [each for (kind, _), each in objects.items() if kind == "Deployment"]
    spec, pod = deployment["spec"], deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    flags = dict(arg[2:].split("=", 1) for arg in container["args"] if "=" in arg)
    limits, requests = container["resources"]["limits"], container["resources"]["requests"]

    budget, memory = size(flags["in-flight-bytes"]), size(limits["memory"])
    if (budget * 1.1 + PROCESS) * 1.2 > memory:
        yield f"--in-flight-bytes {budget} does not fit the memory limit {memory}"
    if size(flags["max-request-bytes"]) + size(flags["max-response-bytes"]) > budget:
        yield "one call with its answer is larger than --in-flight-bytes"
    if requests["memory"] != limits["memory"]:
        yield "memory: request and limit differ"
    lame_duck, drain = seconds(flags["lame-duck"]), seconds(flags["drain-timeout"])
    before = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    if pod["terminationGracePeriodSeconds"] <= before + lame_duck + drain:
        yield "terminationGracePeriodSeconds is not above preStop, --lame-duck and --drain-timeout"
    readiness = container["readinessProbe"]
    if lame_duck <= readiness["periodSeconds"] * readiness["failureThreshold"]:
        yield "--lame-duck ends before the readiness probe has failed"
    if spec["strategy"]["rollingUpdate"]["maxUnavailable"] != 0 or spec.get("minReadySeconds", 0) < 10:
        yield "rollouts are not paced"
    for probe, service in (("startupProbe", "liveness"), ("livenessProbe", "liveness"),
                           ("readinessProbe", "readiness")):
        if container[probe].get("grpc", {}).get("service") != f"posenc.{service}":
            yield f"{probe} does not ask for posenc.{service}"
    security = pod["securityContext"]
    if not (security["runAsNonRoot"] and security["runAsUser"] and security["runAsGroup"]):
        yield "user and group are not both numbers above 0"
    if security["seccompProfile"]["type"] != "RuntimeDefault":
        yield "no seccomp profile"
    security = container["securityContext"]
    if (security["allowPrivilegeEscalation"] or not security["readOnlyRootFilesystem"]
            or security["capabilities"] != {"drop": ["ALL"]}):
        yield "the container may do too much"
    if pod["automountServiceAccountToken"]:
        yield "a service account token is mounted"
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    selectors = [each["spec"].get("selector") for (kind, _), each in objects.items() if kind == "Service"]
    selectors += [each["spec"][key]["matchLabels"] for (kind, _), each in objects.items()
                  for key in ("selector", "podSelector") if kind in ("PodDisruptionBudget", "NetworkPolicy")
                  and key in each["spec"]]
    selectors.append(spec["selector"]["matchLabels"])
    if len(selectors) != 5 or not all(each and each.items() <= labels for each in selectors):
        yield "a selector does not match the pods"


def main():
    chart = read(sys.argv[1])
    found = list(faults(chart))
    if len(sys.argv) > 2:
        found += differences(chart, read(sys.argv[2]))
    for fault in found:
        print(f"{sys.argv[1]}: {fault}", file=sys.stderr)
    sys.exit(1 if found else 0)


main()
