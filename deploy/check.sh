#!/usr/bin/env bash
# Checks manifests and chart without a cluster.
#   check.sh      needs kustomize, helm, promtool, go and python3-yaml
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=tests/cluster/env.sh
. ../tests/cluster/env.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

check() { /usr/bin/python3 check.py "$@"; }

# refused MESSAGE ARGUMENT...: checks that the chart refuses these values.
refused() {
  local message=$1
  shift
  if helm template --kube-version 1.30.0 posenc helm "$@" >/dev/null 2>"$work/error" ||
    ! grep -q -- "$message" "$work/error"; then
    echo "helm does not refuse: $*" >&2
    return 1
  fi
}

kustomize build kustomize/base >"$work/base.yaml"
check "$work/base.yaml"
for overlay in dev prod secure sidecar; do
  kustomize build "kustomize/overlays/$overlay" >"$work/$overlay.yaml"
  check "$work/$overlay.yaml"
done
# The overlay's Envoy reads a file of the folder above.
kustomize build --load-restrictor=LoadRestrictionsNone kustomize/overlays/edge >"$work/edge.yaml"
check "$work/edge.yaml"
grep -q -- '--listen=127.0.0.1:50051' "$work/edge.yaml"
echo "kustomize: base, dev, prod, secure, sidecar and edge keep the rules of check.py"

helm lint --quiet --strict helm
helm template --kube-version 1.30.0 posenc helm >"$work/chart.yaml"
check "$work/chart.yaml" "$work/base.yaml"
helm template --kube-version 1.30.0 cache helm --set autoscaling.enabled=false,replicas=2,port=9000 \
  --set 'server.extraArgs={--max-waiting=64}' --set podAnnotations.a=b >"$work/other.yaml"
grep -q -- '--max-waiting=64' "$work/other.yaml"
grep -q 'name: cache-posenc-headless' "$work/other.yaml"
refused lameDuckSeconds --set server.lameDuckSeconds=-1
refused inFlightBytes --set server.inFlightBytes=64MB
refused typo --set server.typo=1
refused adress --set listen.adress=::
refused listen.address --set 'listen.address=[::]'
refused ipFamilyPolicy --set service.ipFamilyPolicy=Dual
refused hostname --set grpcRoute.hostname=a
refused targetPlacesUtilizationPercentage --set-string autoscaling.targetPlacesUtilizationPercentage=70
refused serverAddress --set autoscaling.keda.serverAddress=prometheus:9090
refused 'parentRefs must name a gateway' --set grpcRoute.enabled=true
keda=autoscaling.keda.enabled=true,autoscaling.targetPlacesUtilizationPercentage=70
refused 'needs monitoring.serviceMonitor' --set "$keda"
refused 'serverAddress must be' --set "$keda,monitoring.serviceMonitor.enabled=true"
refused 'tokens.secretName needs tls' --set tokens.secretName=a

# All options at once, with the values of the overlay secure.
cat >"$work/secure-values.yaml" <<'EOT'
tls: {secretName: posenc-tls, clientCa: true}
tokens: {secretName: posenc-tokens}
monitoring:
  serviceMonitor: {enabled: true}
  alerts: {enabled: true}
server: {maxRequestBytes: 512MiB, maxResponseBytes: 512MiB, inFlightBytes: 1GiB}
resources:
  requests: {cpu: "1", memory: 1536Mi}
  limits: {cpu: "2", memory: 1536Mi}
topologySpread: {node: DoNotSchedule}
EOT
helm template --kube-version 1.30.0 posenc helm -f "$work/secure-values.yaml" >"$work/chart-secure.yaml"
check "$work/chart-secure.yaml" "$work/secure.yaml"
# A sidecar's memory, with the values of the overlay sidecar.
cat >"$work/sidecar-values.yaml" <<'EOT'
sidecar:
  enabled: true
  memory: 256Mi
  sharedMemoryBytes: 256MiB
  container:
    name: application
    image: posenc:0.2.0
    command: [bash, -c, 'rm -f /shm/* && exec "$@"', bash]
    args: [posenc-load, "--server=unix:/run/posenc/posenc.sock", --shared-memory=in-place, --size=1MiB,
           --rates=10, --max-in-flight=16, --verify=1, --duration=8760h, --timeout=30s, --max-error-rate=1, --quiet]
    resources:
      requests: {cpu: 100m, memory: 384Mi}
      limits: {cpu: "1", memory: 384Mi}
server: {maxRequestBytes: 512MiB, maxResponseBytes: 512MiB, inFlightBytes: 1GiB}
resources:
  requests: {cpu: "1", memory: 1792Mi}
  limits: {cpu: "2", memory: 1792Mi}
topologySpread: {node: DoNotSchedule}
EOT
helm template --kube-version 1.30.0 posenc helm -f "$work/sidecar-values.yaml" >"$work/chart-sidecar.yaml"
check "$work/chart-sidecar.yaml" "$work/sidecar.yaml"
refused 'sidecar.container' --set sidecar.enabled=true
refused 'sidecar.memory' --set sidecar.enabled=true,sidecar.memory=lots,sidecar.container.name=a
helm template --kube-version 1.30.0 posenc helm --set tls.secretName=a >"$work/tls.yaml"
check "$work/tls.yaml"
grep -q -- '--tls-ca, /ca/ca.crt' "$work/tls.yaml"
# Checks the YAML blocks of docs/how-to/scale.md, and also a GRPCRoute and addresses of IPv6.
/usr/bin/python3 - ../docs/how-to/scale.md "$work" <<'EOT'
import re, sys, yaml
page, work = open(sys.argv[1]).read(), sys.argv[2]
names = ("adapter-rule", "adapter-values", "keda-values", "keda-object")
for name, block in zip(names, re.findall(r"(?s)```yaml\n(.*?)```", page), strict=True):
    open(f"{work}/{name}.yaml", "w").write(block)
EOT
helm template --kube-version 1.30.0 -n posenc posenc helm -f "$work/adapter-values.yaml" \
  --set listen.address=::,admin.address=::,service.ipFamilyPolicy=PreferDualStack >"$work/chart-adapter.yaml"
check "$work/chart-adapter.yaml"
grep -q -- '--listen=\[::\]:50051' "$work/chart-adapter.yaml"
grep -q -- '--admin=\[::\]:9090' "$work/chart-adapter.yaml"
[[ $(grep -c 'ipFamilyPolicy: PreferDualStack' "$work/chart-adapter.yaml") == 2 ]]
helm template --kube-version 1.30.0 -n posenc posenc helm -f "$work/keda-values.yaml" \
  --set 'grpcRoute.enabled=true,grpcRoute.parentRefs[0].name=edge,grpcRoute.hostnames={posenc.example}' \
  >"$work/chart-keda.yaml"
gateway=$(module "sigs.k8s.io/gateway-api@$GATEWAY_API_VERSION")
keda=$(module "github.com/kedacore/keda/v2@$KEDA_VERSION")
types=("$gateway/config/crd/standard/gateway.networking.k8s.io_grpcroutes.yaml"
  "$keda/config/crd/bases/keda.sh_scaledobjects.yaml")
check "$work/chart-keda.yaml" --types "${types[@]}"
/usr/bin/python3 - "$work" <<'EOT'
import sys, yaml
work = sys.argv[1]
read = lambda name: list(filter(None, yaml.safe_load_all(open(f"{work}/{name}.yaml"))))
(scaled,) = [each for each in read("chart-keda") if each["kind"] == "ScaledObject"]
assert scaled["spec"] == read("keda-object")[0]["spec"], "the page's ScaledObject is not the chart's"
(rule,) = read("adapter-rule")[0]["rules"]["custom"]
(scaler,) = [each for each in read("chart-adapter") if each["kind"] == "HorizontalPodAutoscaler"]
metric = scaler["spec"]["metrics"][1]["pods"]
assert metric["metric"]["name"] == rule["name"]["as"] and metric["target"]["averageValue"] == "700m"
# Pod a has three calls for four places, pod b has one call; a server of another namespace is full.
calls = {("posenc", "a"): (2, 1, 4), ("posenc", "b"): (1, 0, 4), ("other", "a"): (4, 4, 4)}
series = [{"series": f'posenc_calls_{name}{{namespace="{namespace}", service="posenc-admin", pod="{pod}"}}',
           "values": f"{value}x8"}
          for (namespace, pod), values in calls.items()
          for name, value in zip(("in_service", "waiting", "limit"), values)]
of_pods = rule["metricsQuery"].replace("<<.LabelMatchers>>", 'namespace="posenc", pod=~"a|b"').replace("<<.GroupBy>>", "pod")
tests = [(of_pods, [{"labels": '{pod="a"}', "value": 0.75}, {"labels": '{pod="b"}', "value": 0.25}]),
         (scaled["spec"]["triggers"][1]["metadata"]["query"], [{"labels": "{}", "value": 1}])]
expected = [{"expr": expr, "eval_time": "2m", "exp_samples": samples} for expr, samples in tests]
yaml.safe_dump({"tests": [{"interval": "15s", "input_series": series, "promql_expr_test": expected}]},
               open(f"{work}/places.yaml", "w"))
EOT
promtool test rules "$work/places.yaml" >/dev/null
sed 's/value: 0.75/value: 0.5/' "$work/places.yaml" >"$work/wrong.yaml"
if promtool test rules "$work/wrong.yaml" >/dev/null 2>&1; then exit 1; fi
echo "scale: docs/how-to/scale.md has the chart's ScaledObject; both queries give the utilisation of places"
helm template --kube-version 1.30.0 posenc helm --set monitoring.dashboard.enabled=true >"$work/board.yaml"
/usr/bin/python3 - "$work/board.yaml" helm/files/dashboard.json <<'EOT'
import json, sys, yaml
boards = [each["data"]["posenc.json"] for each in yaml.safe_load_all(open(sys.argv[1]))
          if each and each["kind"] == "ConfigMap"]
assert [json.loads(each) for each in boards] == [json.load(open(sys.argv[2]))]
EOT
echo "helm: lint passes, the chart's objects equal the base's, wrong values are refused"

/usr/bin/python3 - "$work/base.yaml" kserve/servingruntime.yaml kserve/inferenceservice.yaml <<'EOT'
import sys, yaml
base, runtime, service = ([each for each in yaml.safe_load_all(open(path)) if each] for path in sys.argv[1:])
ours = runtime[0]["spec"]["containers"][0]
theirs = next(each for each in base if each["kind"] == "Deployment")["spec"]["template"]["spec"]["containers"][0]
budget = lambda container: [each for each in container["args"] if "-bytes=" in each]
assert budget(ours) == budget(theirs) and ours["resources"] == theirs["resources"]
predictor = service[0]["spec"]["predictor"]
assert predictor["model"]["runtime"] == runtime[0]["metadata"]["name"]
flags = dict(each[2:].split("=") for each in ours["args"] if "=" in each)
ends = sum(int(flags[each].rstrip("s")) for each in ("lame-duck", "drain-timeout"))
ends += predictor["model"]["lifecycle"]["preStop"]["sleep"]["seconds"]
assert predictor["terminationGracePeriodSeconds"] > ends
EOT
echo "kserve: the runtime has the base's budgets, and its pods have enough time to drain"

promtool check rules helm/files/alerts.yaml >/dev/null
promtool test rules alerts_test.yaml >/dev/null
sed "s|helm/files|$PWD/helm/files|; s/10% of the calls fail/11% of the calls fail/" alerts_test.yaml >"$work/alerts_test.yaml"
if promtool test rules "$work/alerts_test.yaml" >/dev/null 2>&1; then exit 1; fi
echo "promtool: each of $(grep -c 'alert:' helm/files/alerts.yaml) alerts fires on its own series, and none fires on a healthy server"

# The checks must fail on wrong manifests.
sed 's/in-flight-bytes=256MiB/in-flight-bytes=512MiB/' "$work/chart.yaml" >"$work/wrong.yaml"
if check "$work/wrong.yaml" "$work/base.yaml" 2>"$work/error"; then exit 1; fi
grep -q 'does not fit' "$work/error"
grep -q 'in the chart' "$work/error"
for wrong in 's/readOnly: true/readOnly: false/' 's/defaultMode: .*/defaultMode: 292/' 's|/readyz|/healthz|' \
  '/kubernetes.io.metadata.name/d' 's/- --tls-cert=.*/- --allow-insecure/' 's/publishNotReadyAddresses: true//' \
  's/--admin=0.0.0.0:9090/--admin=0.0.0.0:9091/'; do
  sed "$wrong" "$work/secure.yaml" >"$work/wrong.yaml"
  if check "$work/wrong.yaml" 2>/dev/null; then
    echo "check.py does not see: $wrong" >&2
    exit 1
  fi
done
for wrong in 's/medium: Memory//' 's/sizeLimit: .*/sizeLimit: 512Mi/' 's/--shared-memory-bytes=.*/--shared-memory-bytes=512MiB/' \
  's/- --shared-memory-prefix=.*//' 's|--listen=unix:/run/posenc/|--listen=unix:/tmp/|' 's/memory: 1792Mi/memory: 1536Mi/'; do
  sed "$wrong" "$work/sidecar.yaml" >"$work/wrong.yaml"
  if check "$work/wrong.yaml" 2>/dev/null; then
    echo "check.py does not see: $wrong" >&2
    exit 1
  fi
done
for wrong in 's/threshold: .*/threshold: 0.7/' 's/minReplicaCount:/minReplicas:/' 's/- name: edge/- nam: edge/' \
  's/kind: ScaledObject/kind: ScaledJob/' 's/^        - name: posenc$/        - name: other/'; do
  sed "$wrong" "$work/chart-keda.yaml" >"$work/wrong.yaml"
  if check "$work/wrong.yaml" --types "${types[@]}" 2>/dev/null; then
    echo "check.py does not see: $wrong" >&2
    exit 1
  fi
done
# Containers of two users: the server trusts the other user, and both share a
# group.
two_users() {
  /usr/bin/python3 - "$work/sidecar.yaml" "$1" >"$work/two.yaml" <<'EOT'
import sys, yaml
objects = [each for each in yaml.safe_load_all(open(sys.argv[1])) if each]
pod = next(each for each in objects if each["kind"] == "Deployment")["spec"]["template"]["spec"]
for container in pod["containers"]:
    if container["name"] == "posenc":
        container["args"].append(sys.argv[2])
    else:
        container["securityContext"]["runAsUser"] = 65533
print(yaml.safe_dump_all(objects))
EOT
}
two_users --shared-memory-uid=65533
check "$work/two.yaml"
sed -i '/fsGroup/d' "$work/two.yaml"
if check "$work/two.yaml" 2>/dev/null; then exit 1; fi
two_users --shared-memory-uid=65534
if check "$work/two.yaml" 2>/dev/null; then exit 1; fi
