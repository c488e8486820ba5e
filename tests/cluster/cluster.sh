#!/usr/bin/env bash
# Brings up a real cluster of one node, installs posenc in it, and changes it
# while clients call. Prints a row for each change: calls, failed calls, and the
# longest wait.
#   cluster.sh BIN_DIR IMAGE_ARCHIVE [keep] [sidecar]
# BIN_DIR holds posenc and posenc-load for the client outside. With `keep` the
# cluster stays up; down.sh ends it. With `sidecar` it only tests containers that
# share memory. Needs root.
set -euo pipefail
bin=$(cd "$1" && pwd)
archive=$(realpath "$2")
keep='' part=''
for argument in "${@:3}"; do
  case $argument in
    keep) keep=keep ;;
    sidecar) part=sidecar ;;
    *) echo "cluster: '$argument' is unknown; there is: keep sidecar" >&2 && exit 2 ;;
  esac
done
# shellcheck source=tests/cluster/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=tests/cluster/sidecar.sh
. "$HERE/sidecar.sh"
cd "$HERE/../.."
export PATH=$BIN:$PATH KUBECONFIG=$STATE/admin.conf

ns=posenc-dev
version=$(<VERSION)
image=posenc:$version
rate=100 # calls a second while the cluster changes
senders=100 # senders that stall at each replica during the changes
work=$(mktemp -d)
load=
stalled=
faults=0

die() {
  echo "cluster: $*" >&2
  exit 1
}
say() { printf '[%4ds] %s\n' "$SECONDS" "$*"; }
ok() { printf '%-58s %s\n' "$1" "${2:-yes}"; }
bad() {
  printf '%-58s FAILED %s\n' "$1" "${2:-}"
  faults=1
}
# hold CLAIM COMMAND...: prints the claim, and whether the command succeeds.
hold() {
  local claim=$1
  shift
  if "$@" >"$work/out" 2>&1; then ok "$claim"; else
    bad "$claim"
    tail -n 5 "$work/out"
  fi
}

finish() {
  local code=$?
  [[ -z $load ]] || kill -KILL "$load" 2>/dev/null || true
  [[ -z $stalled ]] || kill -KILL "$stalled" 2>/dev/null || true
  kubectl uncordon "$NODE" >/dev/null 2>&1 || true
  [[ $keep == keep ]] || "$HERE/down.sh"
  rm -rf "$work"
  exit "$code"
}
trap finish EXIT

k() { kubectl -n "$ns" "$@"; }

# until_true SECONDS COMMAND...: waits until the command succeeds.
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || return 1
    sleep 0.2
  done
}

# Installs KServe's own types from its module.
kserve_types() {
  local folder type
  folder=$(module "github.com/kserve/kserve@$KSERVE_VERSION")
  for type in servingruntimes inferenceservices; do
    kubectl apply --server-side -f "$folder/config/crd/full/serving.kserve.io_$type.yaml" || return
  done
}

rolled_out() { k rollout status deploy/posenc --timeout="${1:-120}s" >/dev/null; }
pods() { k get pod -l app.kubernetes.io/component=server --field-selector status.phase=Running -o "jsonpath={.items[*]$1}"; }
first() { pods '.metadata.name' | cut -d' ' -f1; }
wants_replicas() { [[ $(k get deploy posenc -o 'jsonpath={.spec.replicas}') == "$1" ]]; }
replicas_ready() { [[ $(k get deploy posenc -o 'jsonpath={.status.readyReplicas}') == "$1" ]]; }
pods_left() { [[ $(k get pod -l app.kubernetes.io/component=server -o name | wc -l) == "$1" ]]; }
# The cluster's DNS server; gRPC 1.51 wants its port.
outside() { echo "dns://$DNS_SVC:53/posenc-headless.$ns.svc.cluster.local:50051"; }

# start_load ARGUMENT...: runs the client outside of the cluster, until
# stop_load.
start_load() {
  "$bin/posenc-load" --server "$(outside)" --duration 1h --max-error-rate 1 --quiet \
    --json "$work/report.json" "$@" >"$work/load.log" 2>&1 &
  load=$!
  until_true 15 connected || die "posenc-load: $(tail -n 2 "$work/load.log")"
}
connected() { kill -0 "$load" && [[ -n $(ss -Htn state established "( dport = :50051 )") ]]; }
stop_load() {
  kill -INT "$load"
  wait "$load" || true
  load=
}

# Starts senders at every replica that begin a message and never go on.
start_stalled() {
  python3 "$HERE/stall.py" "$DNS_SVC" "posenc-headless.$ns.svc.cluster.local" 50051 "$senders" \
    >"$work/stalled" 2>"$work/stalled.log" &
  stalled=$!
  until_true 15 all_stalled || die "stalled senders: $(tail -n 2 "$work/stalled.log")"
}
all_stalled() { (($(ss -Htnp state established "( dport = :50051 )" | grep -c "pid=$stalled,") >= senders)); }
stop_stalled() {
  local begun most seen
  kill -TERM "$stalled"
  wait "$stalled" || true
  stalled=
  read -r begun most seen <"$work/stalled"
  if ((most >= 3 * senders && seen >= 3)); then
    ok "beside $senders stalled senders a replica" "$begun of them at $seen replicas, $most at a time"
  else
    bad "stalled senders at every replica" "$begun at $seen replicas, $most at a time: $(tail -n 1 "$work/stalled.log")"
  fi
}

# under_load NAME ALLOWED COMMAND...: a row of the table; more failed calls than
# ALLOWED are a fault.
under_load() {
  local name=$1 allowed=$2 calls failed pause errors began=$SECONDS code=0
  shift 2
  start_load --rates "$rate" --size 16KiB --verify 0.05
  sleep 3 # its warm-up of 1 s, which is not counted, and some calls before the event
  "$@" >"$work/out" 2>&1 || code=$?
  sleep 3 # calls after the event
  stop_load
  read -r calls failed pause errors < <(python3 "$HERE/../chaos/figure.py" "$work/report.json")
  printf '%-34s %7s %7s %11s ms %5s s  %s\n' "$name" "$calls" "$failed" "$pause" \
    "$((SECONDS - began))" "$errors"
  ((failed <= allowed)) || bad "$name" "$failed calls"
  if ((code)); then
    bad "$name: the event itself"
    tail -n 5 "$work/out"
  fi
}

# --- the cluster and the image ---------------------------------------------
say "cluster"
"$HERE/up.sh"
if [[ $archive == *.gz ]]; then zcat "$archive"; else cat "$archive"; fi | "$STATE/load" >/dev/null
nodectl() { ctr --address "$CRI" -n k8s.io "$@"; }
nodectl images tag --force "docker.io/library/$image" docker.io/library/posenc:next >/dev/null
say "image $image loaded"

if [[ $part == sidecar ]]; then
  share_memory
  ((faults == 0)) || die "a line above says what failed"
  say "all of it holds"
  exit
fi

# --- manifests and chart ----------------------------------------------------
deploy/check.sh
for overlay in dev prod; do
  # Without its namespace, even a dry run of its objects fails.
  kubectl apply -f "deploy/kustomize/overlays/$overlay/namespace.yaml" >/dev/null
  kustomize build "deploy/kustomize/overlays/$overlay" >"$work/$overlay.yaml"
  hold "overlay $overlay: server-side dry run, strict" \
    kubectl apply --dry-run=server --validate=strict -f "$work/$overlay.yaml"
done
kubectl delete namespace posenc --wait=false >/dev/null
kserve_types >/dev/null # the types are enough for a dry run: no controller runs
known() { kubectl get servingruntimes.serving.kserve.io,inferenceservices.serving.kserve.io; }
until_true 30 known || die "KServe's types are not served"
hold "KServe $KSERVE_VERSION: server-side dry run of deploy/kserve, strict" \
  kubectl apply --dry-run=server --validate=strict -f deploy/kserve

sed -e 's/^  name: posenc-dev/  name: posenc-helm/' deploy/kustomize/overlays/dev/namespace.yaml |
  kubectl apply -f - >/dev/null
until_true 30 kubectl -n posenc-helm get serviceaccount default # without this account, pods are refused
small=(--set autoscaling.minReplicas=1 --set resources.requests.cpu=100m --set minReadySeconds=0)
helm template posenc deploy/helm -n posenc-helm --kube-version "$K8S_VERSION" \
  --set autoscaling.targetPlacesUtilizationPercentage=70,service.ipFamilyPolicy=PreferDualStack >"$work/chart.yaml"
hold "helm template: server-side dry run, strict" \
  kubectl apply -n posenc-helm --dry-run=server --validate=strict -f "$work/chart.yaml"
hold "helm install --wait" helm install posenc deploy/helm -n posenc-helm "${small[@]}" --wait --timeout 90s
hold "helm test: rotates a tensor, every element checked" helm test posenc -n posenc-helm --logs --timeout 90s
grep -h 'elements, ' "$work/out" || true
hold "helm uninstall" helm uninstall posenc -n posenc-helm --wait --timeout 90s
kubectl delete namespace posenc-helm --wait=false >/dev/null

kubectl apply --validate=strict -k deploy/kustomize/overlays/dev >/dev/null
hold "kubectl apply -k overlays/dev, strict; ready by its probes" rolled_out
reads_cpu() { [[ $(k get hpa posenc -o 'jsonpath={.status.currentMetrics[0].resource.current.averageUtilization}') =~ [0-9] ]]; }
hold "autoscaler reads the CPU" until_true 90 reads_cpu

# --- what is in a pod -------------------------------------------------------
pod=$(pods '.metadata.name' | cut -d' ' -f1)
status=$(k exec "$pod" -- cat /proc/1/status)
has() { if [[ $status =~ $2 ]]; then ok "$1" "$(tr -s '\t \n' ' ' <<<"${BASH_REMATCH[0]}")"; else bad "$1"; fi; }
has "in the pod: user" $'Uid:[\t]65532[\t]65532'
has "in the pod: group" $'Gid:[\t]65532[\t]65532'
has "in the pod: no capabilities" $'CapEff:[\t]0000000000000000\nCapBnd:[\t]0000000000000000'
has "in the pod: no new privileges" $'NoNewPrivs:[\t]1'
has "in the pod: seccomp filter" $'Seccomp:[\t]2'
readonly_root() { [[ $(k exec "$pod" -- touch /tmp/x 2>&1) == *"Read-only file system"* ]]; }
hold "in the pod: root read-only" readonly_root
no_token() { ! k exec "$pod" -- test -e /var/run/secrets/kubernetes.io; }
hold "in the pod: no service account token" no_token
hold "in the pod: posencd --probe" k exec "$pod" -- posencd --probe 127.0.0.1:50051
ok "kubectl logs" "$(k logs "$pod" | head -n 1)"
refused() { [[ $(k run bad --image=x --dry-run=server 2>&1) == *"violates PodSecurity"* ]]; }
hold "a pod outside Pod Security restricted is refused" refused

# --- autoscaler ------------------------------------------------------------
scale_on_cpu() {
  start_load --in-flight 2 --size 256KiB
  local began=$SECONDS up code=0
  until_true 150 replicas_ready 3 || code=1
  up=$((SECONDS - began))
  stop_load
  ((code == 0)) || { k describe hpa posenc; return 1; }
  began=$SECONDS
  until_true 200 wants_replicas 1 || { k describe hpa posenc; return 1; }
  echo "$up s up, $((SECONDS - began)) s down" >"$work/times"
}
hold "autoscaler: 1 -> 3 on load, 3 -> 1 without" scale_on_cpu
[[ ! -s $work/times ]] || ok "autoscaler: times" "$(cat "$work/times")"
k delete hpa posenc >/dev/null # it would undo the next changes
k scale deploy posenc --replicas=3 >/dev/null
rolled_out

# --- balancing -------------------------------------------------------------
sed "s/image: posenc\$/image: $image/" "$HERE/manifests/client.yaml" | k apply --validate=strict -f - >/dev/null
k wait --for=condition=Ready pod/client --timeout=60s >/dev/null
received() { k exec "$1" -- cat /proc/net/dev | awk '/eth0/ { print $2 }'; }
# reaches CLAIM COMMAND...: every replica gets at least a sixth of the bytes.
reaches() {
  local claim=$1 each total=0 before=() share=() names i least=1
  shift
  read -ra names <<<"$(pods '.metadata.name')"
  for each in "${names[@]}"; do before+=("$(received "$each")"); done
  "$@" >"$work/out" 2>&1 || { bad "$claim"; tail -n 3 "$work/out"; return; }
  for i in "${!names[@]}"; do
    share[i]=$(($(received "${names[i]}") - before[i]))
    total=$((total + share[i]))
  done
  for i in "${!names[@]}"; do
    share[i]=$((share[i] * 100 / total))
    ((share[i] >= 16)) || least=0
  done
  if ((least && ${#names[@]} == 3)); then ok "$claim" "${share[*]} % of the bytes"; else bad "$claim" "${share[*]} %"; fi
}
calls=(--in-flight 4 --size 64KiB --duration 3s --quiet)
reaches "client in a pod, headless Service: every replica" \
  k exec client -- posenc-load --server dns:///posenc-headless:50051 "${calls[@]}"
reaches "client outside, headless Service: every replica" "$bin/posenc-load" --server "$(outside)" "${calls[@]}"

same_bytes() {
  local address n=0
  "$bin/posenc" sample --out "$work/in.safetensors" --seed 7 --q 1,512,8,128 --k 1,512,2,128 || return
  for address in $(pods '.status.podIP'); do
    n=$((n + 1))
    "$bin/posenc" --server "$address:50051" apply --preset llama-3.1-8b --in "$work/in.safetensors" \
      --layout bshd --start 0 --out "$work/out$n.safetensors" || return
    cmp "$work/out1.safetensors" "$work/out$n.safetensors" || return
  done
  ((n == 3)) && "$bin/posenc" check --preset llama-3.1-8b --layout bshd \
    --before "$work/in.safetensors" --after "$work/out1.safetensors"
}
hold "equal requests to three replicas: the same bytes" same_bytes

# --- changes under load ----------------------------------------------------
scale() {
  k scale deploy posenc --replicas="$1" && rolled_out && until_true 60 pods_left "$1"
}
# The worst case: the client's first look-up found only the replica that is
# removed.
up_and_down() {
  k annotate pod "$(first)" controller.kubernetes.io/pod-deletion-cost=-1 && scale 3 && scale 1
}
restart() { k rollout restart deploy/posenc && rolled_out 180 && until_true 60 pods_left 3; }
update() { k set image deploy/posenc posenc="$1" && rolled_out 180 && until_true 60 pods_left 3; }
delete() { k delete pod "$(first)" --wait=true && rolled_out; }
drain() {
  # The cluster has only this node, so a removed pod cannot start elsewhere. The
  # drain removes one pod; the disruption budget keeps the other pods.
  ! kubectl drain "$NODE" --ignore-daemonsets --delete-emptydir-data --force --timeout=20s || return 1
  [[ $(k get deploy posenc -o 'jsonpath={.status.readyReplicas}') == 2 ]] || return 1
  kubectl uncordon "$NODE" && rolled_out
}

scale 1 >/dev/null
start_stalled
printf '\n%-34s %7s %7s %14s %7s  %s\n' "under $rate calls a second" calls failed "longest pause" took errors
under_load "scale 1 -> 3 -> 1, the first goes" 0 up_and_down
under_load "deletion of the only pod" 0 delete
scale 3 >/dev/null
under_load "rolling restart, 3 replicas" 0 restart
# Only for comparison: changes without pacing.
pace() { k patch deploy posenc -p "{\"spec\": {\"minReadySeconds\": $1}}" >/dev/null; }
pace 0
under_load "the same with minReadySeconds 0" 1000000 restart
pace 15
under_load "image update, 3 replicas" 0 update posenc:next
under_load "deletion of one pod of 3" 0 delete
under_load "node drain, down to the budget" 0 drain
stop_stalled

kubectl delete -k deploy/kustomize/overlays/dev --ignore-not-found --wait=false >/dev/null
ns=posenc-oom
kubectl apply --validate=strict -k "$HERE/manifests/oom" >/dev/null
rolled_out
oom() {
  local name address
  read -r name address <<<"$(k get pod -l app.kubernetes.io/component=server -o 'jsonpath={.items[0].metadata.name} {.items[0].status.podIP}')"
  "$bin/posenc-load" --server "$address:50051" --size 256MiB --in-flight 1 --calls 1 \
    --warm-up 0s --no-retry --quiet || true
  until_true 30 eval "[[ \$(k get pod $name -o 'jsonpath={.status.containerStatuses[0].lastState.terminated.reason}') == OOMKilled ]]" || return 1
  k logs "$name" --previous | grep 'WARNING.*--in-flight-bytes: ' || return 1
  rolled_out
}
# Allows the failures of calls that are in flight at the killed server: a third
# of the calls that are due in one pause.
under_load "OOM kill of one of 3" 4 oom
ok "the server said so at its start" "$(grep -h WARNING "$work/out" | head -n 1)"
kubectl delete -k "$HERE/manifests/oom" --ignore-not-found --wait=false >/dev/null

# --- two containers that share memory ---------------------------------------
share_memory

((faults == 0)) || die "a line above says what failed"
say "all of it holds"
