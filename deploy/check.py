#!/usr/bin/env python3
"""Checks rules of the manifests, and that the chart equals the base.

usage: check.py RENDERED.yaml [BASE.yaml] [--types CRD.yaml...]

Checks that RENDERED has budgets below limits, times that fit each other, and right
probes and Pod Security. With BASE, RENDERED and BASE must be equal, except for
Helm's own labels. With CRDs, objects of these kinds must have the fields and types
of the CRDs.
"""
import argparse
import re
import sys

import yaml

UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
# Bytes of memory for an idle server; 25 MiB were measured.
PROCESS = 30 * 2**20
HELM_LABELS = {"helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version"}


def size(text):
    number, unit = re.fullmatch(r"(\d+)([A-Za-z]*)", text).groups()
    return int(number) * UNITS[unit]


def seconds(text):
    number, unit = re.fullmatch(r"(\d+)(s|m|h)", text).groups()
    return int(number) * {"s": 1, "m": 60, "h": 3600}[unit]


def read(path):
    """Returns objects by kind and name, without the chart's tests."""
    with open(path, encoding="utf-8") as file:
        objects = [each for each in yaml.safe_load_all(file) if each]
    kept = {}
    for each in objects:
        meta = each["metadata"]
        if "helm.sh/hook" in meta.get("annotations", {}) or each["kind"] == "Namespace":
            continue
        meta.pop("namespace", None)
        for label in HELM_LABELS:
            meta.get("labels", {}).pop(label, None)
        kept[each["kind"], meta["name"]] = each
    return kept


def sorted_by_name(value):
    """Returns the object with sorted lists of volumes, because their order has no meaning."""
    if isinstance(value, dict):
        value = {key: sorted_by_name(each) for key, each in value.items()}
        for key in value.keys() & {"volumes", "volumeMounts"}:
            value[key] = sorted(value[key], key=lambda each: each["name"])
    elif isinstance(value, list):
        value = [sorted_by_name(each) for each in value]
    return value


def differences(one, other, path=""):
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from differences(one.get(key), other.get(key), f"{path}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, pair in enumerate(zip(one, other)):
            yield from differences(*pair, f"{path}[{index}]")
    elif one != other:
        yield f"{path}: {one!r} in the chart, {other!r} in the base"


def listener_faults(pod, container, flags):
    """Finds faults in TLS, tokens, addresses and probes."""
    tls = "tls-cert" in flags
    if tls == ("--allow-insecure" in container["args"]):
        yield "must have either TLS or --allow-insecure"
    if "token-file" in flags and not tls:
        yield "tokens without TLS"
    mounts = {each["mountPath"]: each for each in container.get("volumeMounts", [])}
    secrets = {each["name"]: each["secret"] for each in pod.get("volumes", []) if "secret" in each}
    for flag in ("tls-cert", "tls-key", "tls-client-ca", "token-file"):
        if flag not in flags:
            continue
        mount = mounts.get(flags[flag].rsplit("/", 1)[0], {})
        # A file that is mounted by subPath does not change when its secret changes.
        if not mount.get("readOnly") or "subPath" in mount or mount["name"] not in secrets:
            yield f"--{flag} is in no secret that is mounted as a folder, read-only"
        elif secrets[mount["name"]].get("defaultMode") != 0o440:
            yield f"others may read the secret of --{flag}"
    for probe, service, path in (("startupProbe", "liveness", "/healthz"), ("livenessProbe", "liveness", "/healthz"),
                                 ("readinessProbe", "readiness", "/readyz")):
        asked = container[probe]
        if tls and asked.get("httpGet") != {"port": "admin", "path": path}:
            yield f"{probe} does not ask the admin port for {path}: kubelet's gRPC probe cannot speak TLS"
        if not tls and asked.get("grpc", {}).get("service") != f"posenc.{service}":
            yield f"{probe} does not ask for posenc.{service}"
        if ("grpc" in asked) == ("httpGet" in asked):
            yield f"{probe} must ask either by grpc or by httpGet"


def admin_faults(objects, container, flags):
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    if int(flags["admin"].rsplit(":", 1)[1]) != ports["admin"]:
        yield "--admin is not the port named admin"
    (policy,) = [each["spec"] for (kind, _), each in objects.items() if kind == "NetworkPolicy"]
    for rule in policy["ingress"]:
        asked = {each.get("port") for each in rule.get("ports", [])}
        if asked not in ({"grpc"}, {"admin"}):
            yield "a rule of the NetworkPolicy is not for one port"
        if "admin" in asked and not all("ipBlock" in each or any((each.get(key) or {}).get("matchLabels")
                                                                 for key in ("namespaceSelector", "podSelector"))
                                        for each in rule.get("from", [{}])):
            yield "the NetworkPolicy opens the admin port to everybody"
    for (kind, _), each in objects.items():
        if kind == "Service" and any(port["name"] == "admin" for port in each["spec"]["ports"]):
            if each["spec"].get("clusterIP") != "None" or not each["spec"].get("publishNotReadyAddresses"):
                yield "the admin Service is not headless, or leaves draining pods out"
        if kind == "ServiceMonitor":
            wanted = each["spec"]["selector"]["matchLabels"].items()
            if not any(other == "Service" and wanted <= service["metadata"]["labels"].items()
                       and service["spec"]["ports"][0]["name"] == each["spec"]["endpoints"][0]["port"]
                       for (other, _), service in objects.items()):
                yield "the ServiceMonitor selects no Service with the admin port"


def shared_memory_faults(pod, container, flags):
    """Finds faults in the containers that share memory with the server, and in their volume."""
    others = [each for each in pod["containers"] if each is not container]
    if "shared-memory-prefix" not in flags:
        if others:
            yield "another container, but no shared memory"
        return
    volumes = {each["name"]: each.get("emptyDir") for each in pod.get("volumes", [])}
    places = {each["mountPath"]: each for each in container["volumeMounts"]}
    memory = places.get(flags["shared-memory-prefix"].rsplit("/", 1)[0], {})
    volume = volumes.get(memory.get("name")) or {}
    if memory.get("readOnly") or volume.get("medium") != "Memory" or "sizeLimit" not in volume:
        yield "--shared-memory-prefix is in no emptyDir of medium Memory with a sizeLimit"
        return
    room = size(volume["sizeLimit"])
    if size(flags["shared-memory-bytes"]) > room:
        yield "--shared-memory-bytes is above the volume's sizeLimit"
    used = (size(flags["in-flight-bytes"]) * 1.1 + PROCESS) * 1.2 + room
    if used > size(container["resources"]["limits"]["memory"]):
        yield "the memory limit holds --in-flight-bytes, but not the volume beside it"
    sockets = [each.rsplit("/", 1)[0] for each in (arg[len("--listen=unix:"):] for arg in container["args"]
                                                   if arg.startswith("--listen=unix:"))]
    socket = places.get(sockets[0] if sockets else "", {}).get("name")
    if volumes.get(socket) is None:
        yield "no unix socket in an emptyDir"
    for other in others:
        mounts = {each["name"] for each in other.get("volumeMounts", [])}
        if not {memory["name"], socket} <= mounts:
            yield f"the container {other['name']} does not mount shared memory and socket"
        user = other.get("securityContext", {}).get("runAsUser", pod["securityContext"]["runAsUser"])
        server = container["securityContext"].get("runAsUser", pod["securityContext"]["runAsUser"])
        trusted = f"--shared-memory-uid={user}" in container["args"] and "fsGroup" in pod["securityContext"]
        if user != server and not trusted:
            yield f"the container {other['name']} has another user than the server, so the server refuses its files"


def reference_faults(objects):
    """Finds autoscalers and routes whose target is not one of these objects."""
    scalers = [each for (kind, _), each in objects.items() if kind in ("HorizontalPodAutoscaler", "ScaledObject")]
    if len(scalers) != 1:
        yield "there must be exactly one HorizontalPodAutoscaler or ScaledObject"
    for each in scalers:
        if ("Deployment", each["spec"]["scaleTargetRef"]["name"]) not in objects:
            yield f"the {each['kind']} scales no Deployment"
    services = {name: {port["port"] for port in each["spec"]["ports"]}
                for (kind, name), each in objects.items() if kind == "Service"}
    for (kind, _), each in objects.items():
        if kind != "GRPCRoute":
            continue
        for backend in (backend for rule in each["spec"]["rules"] for backend in rule.get("backendRefs", [])):
            if backend["port"] not in services.get(backend["name"], ()):
                yield "the GRPCRoute leads to no Service"


JSON_TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}


def type_faults(value, schema, path):
    """Finds missing fields, unknown fields and wrong types, according to the schema of a CRD."""
    kind = schema.get("type")
    if kind is None or schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    if not isinstance(value, JSON_TYPES[kind]):
        yield f"{path} is {value!r}, no {kind}"
    elif kind == "array":
        for index, each in enumerate(value):
            yield from type_faults(each, schema["items"], f"{path}[{index}]")
    elif kind == "object":
        for key in schema.get("required", []):
            if key not in value:
                yield f"{path} lacks {key}"
        for key, each in value.items():
            field = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
            if field is None:
                yield f"{path}.{key} is unknown"
            else:
                yield from type_faults(each, field, f"{path}.{key}")


def faults(objects):
    kinds = {kind for kind, _ in objects}
    for kind in ("Deployment", "Service", "ServiceAccount", "PodDisruptionBudget", "NetworkPolicy"):
        if kind not in kinds:
            yield f"no {kind}"
    headless = [each for (kind, _), each in objects.items()
                if kind == "Service" and each["spec"].get("clusterIP") == "None"
                and each["spec"]["ports"][0]["name"] == "grpc"]
    if len(headless) != 1 or headless[0]["spec"].get("publishNotReadyAddresses"):
        yield "there must be exactly one headless Service for gRPC, with only ready addresses"
    (deployment,) = [each for (kind, _), each in objects.items() if kind == "Deployment"]
    spec, pod = deployment["spec"], deployment["spec"]["template"]["spec"]
    (container,) = [each for each in pod["containers"] if each["name"] == "posenc"]
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
        yield "rollouts are too fast: maxUnavailable must be 0, and minReadySeconds at least 10"
    yield from listener_faults(pod, container, flags)
    yield from admin_faults(objects, container, flags)
    yield from shared_memory_faults(pod, container, flags)
    yield from reference_faults(objects)
    security = pod["securityContext"]
    if not (security["runAsNonRoot"] and security["runAsUser"] and security["runAsGroup"]):
        yield "user and group are not both numbers above 0"
    if security["seccompProfile"]["type"] != "RuntimeDefault":
        yield "no seccomp profile"
    security = container["securityContext"]
    if (security["allowPrivilegeEscalation"] or not security["readOnlyRootFilesystem"]
            or security["capabilities"] != {"drop": ["ALL"]}):
        yield "the container has more rights than it needs"
    if pod["automountServiceAccountToken"]:
        yield "a service account token is mounted"
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    selectors = [each["spec"].get("selector") for (kind, _), each in objects.items() if kind == "Service"]
    selectors += [each["spec"][key]["matchLabels"] for (kind, _), each in objects.items()
                  for key in ("selector", "podSelector") if kind in ("PodDisruptionBudget", "NetworkPolicy")
                  and key in each["spec"]]
    selectors.append(spec["selector"]["matchLabels"])
    if len(selectors) < 5 or not all(each and each.items() <= labels for each in selectors):
        yield "a selector does not match the pods"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rendered")
    parser.add_argument("base", nargs="?")
    parser.add_argument("--types", nargs="*", default=[])
    arguments = parser.parse_args()
    chart = read(arguments.rendered)
    found = list(faults(chart))
    if arguments.base:
        found += differences(sorted_by_name(chart), sorted_by_name(read(arguments.base)))
    for path in arguments.types:
        with open(path, encoding="utf-8") as file:
            crd = yaml.safe_load(file)["spec"]
        schemas = {f"{crd['group']}/{each['name']}": each["schema"]["openAPIV3Schema"]["properties"]["spec"]
                   for each in crd["versions"] if each["served"]}
        ours = [each for (kind, _), each in chart.items() if kind == crd["names"]["kind"]]
        if not ours:
            found.append(f"no {crd['names']['kind']}")
        for each in ours:
            found += type_faults(each["spec"], schemas[each["apiVersion"]], each["kind"])
    for fault in found:
        print(f"{arguments.rendered}: {fault}", file=sys.stderr)
    sys.exit(1 if found else 0)


main()
