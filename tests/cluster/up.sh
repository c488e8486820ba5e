#!/usr/bin/env bash
# Bring up a real one-node Kubernetes on one Linux machine, from package registries
# alone: Debian's containerd, runc and CNI plugins; the rest built with Go.
# Run as root. Idempotent: a second call finds the running cluster.
#   up.sh          all of it (first time: minutes; later: seconds)
#   up.sh build    only fetch and build, start nothing
#   up.sh tools    only helm and kustomize; prints where they are
# Then: export KUBECONFIG=$STATE/admin.conf, and `docker save IMG | $STATE/load`.
#   CLUSTER_LOCK  a file that is locked while a program is built
# README.md explains the unusual lines.
set -euo pipefail
# shellcheck source=tests/cluster/env.sh
. "$(dirname "$0")/env.sh"
say() { printf '[%4ds] %s\n' "$SECONDS" "$*" >&2; }

# --- tools ------------------------------------------------------------------
build() { # build OUTPUT PACKAGE [MODULE]: skipped when it is already there
  [ -x "$BIN/$1" ] && return
  say "building $1"
  (
    cd "$HERE/tools/${3:-}"
    ${CLUSTER_LOCK:+flock "$CLUSTER_LOCK"} nice -n 10 \
      go build -mod=readonly -trimpath -ldflags "$ld" -o "$BIN/.$1" "$2"
  ) 2> >(grep -v '^go: downloading' >&2)
  mv "$BIN/.$1" "$BIN/$1"
}
command -v go >/dev/null || { echo "up.sh: needs go 1.26 or newer" >&2; exit 1; }
export CGO_ENABLED=0 GOFLAGS=
ld="-s -w"
minor=${K8S_VERSION#v1.}
for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  ld+=" -X $p.gitVersion=$K8S_VERSION -X $p.gitMajor=1 -X $p.gitMinor=${minor%%.*} -X $p.gitTreeState=clean"
  ld+=" -X $p.gitCommit=0000000000000000000000000000000000000000 -X $p.buildDate=2026-01-01T00:00:00Z"
done
mkdir -p "$BIN" "$CACHE/images"
build helm helm.sh/helm/v3/cmd/helm helm
build kustomize sigs.k8s.io/kustomize/kustomize/v5 kustomize
[ "${1:-}" != tools ] || { echo "$BIN"; exit 0; }
[ "$EUID" = 0 ] || { echo "up.sh: needs root" >&2; exit 1; }

# --- packages ---------------------------------------------------------------
want=()
for pair in containerd:containerd runc:runc iptables:iptables ip:iproute2 nsenter:util-linux pgrep:procps openssl:openssl \
  gcc:gcc python3:python3; do
  command -v "${pair%%:*}" >/dev/null || want+=("${pair#*:}")
done
[ -x /usr/lib/cni/ptp ] || want+=(containernetworking-plugins)
[ -e /usr/lib/x86_64-linux-gnu/libc.a ] || want+=(libc6-dev)
if [ ${#want[@]} -gt 0 ]; then
  say "installing ${want[*]}"
  apt-get -o DPkg::Lock::Timeout=300 update -qq
  DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -qq -y --no-install-recommends "${want[@]}" >/dev/null
fi

# --- the cluster's programs -------------------------------------------------
build etcd go.etcd.io/etcd/server/v3
for b in kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl; do
  build $b k8s.io/kubernetes/cmd/$b
done
build metrics-server sigs.k8s.io/metrics-server/cmd/metrics-server metrics # for the autoscaler
build coredns . dns # from its own module, because its pinned versions differ from those of Kubernetes

# --- images -----------------------------------------------------------------
if [ ! -s "$CACHE/images/pause.tar" ]; then
  gcc -Os -static -s -o "$CACHE/pause" "$HERE/pause.c"
  python3 "$HERE/mkimage.py" cluster.local/pause:1 65535:65535 "$CACHE/pause=/pause" -- /pause >"$CACHE/images/pause.tar.new"
  mv "$CACHE/images/pause.tar.new" "$CACHE/images/pause.tar"
fi
[ "${1:-}" != build ] || { say "built in $BIN"; exit 0; }

export PATH=$BIN:$PATH KUBECONFIG=$STATE/admin.conf
alive() { # whether the recorded process runs, and not a later process with the same number
  [ -s "$STATE/pid" ] && read -r pid born <"$STATE/pid" && [ "$(cut -d' ' -f22 "/proc/$pid/stat" 2>/dev/null)" = "$born" ]
}
if alive; then kubectl get nodes; say "already up"; exit 0; fi
"$HERE/down.sh" # clears what a crash may have left

# --- keys and configurations ------------------------------------------------
mkdir -p "$STATE"/{pki,cni,log}
chmod 700 "$STATE/pki"
# kubelet changes these settings of the kernel; down.sh restores them.
grep -H . /proc/sys/vm/overcommit_memory /proc/sys/kernel/{panic,panic_on_oops} >"$STATE/settings"
P=$STATE/pki
key() { openssl ecparam -name prime256v1 -genkey -noout -out "$P/$1.key" 2>/dev/null; }
cert() { # cert FILE SUBJECT [SAN]
  key "$1"
  openssl req -new -key "$P/$1.key" -subj "$2" -out "$P/$1.csr"
  openssl x509 -req -in "$P/$1.csr" -CA "$P/ca.crt" -CAkey "$P/ca.key" -CAcreateserial -days 30 -out "$P/$1.crt" 2>/dev/null \
    -extfile <(echo "keyUsage=digitalSignature
extendedKeyUsage=serverAuth,clientAuth${3:+
subjectAltName=$3}")
}
conf() { # conf NAME [SERVER]: a kubeconfig with that client certificate
  cat >"$STATE/$1.conf" <<Y
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://${2:-127.0.0.1}:6443", certificate-authority-data: $(base64 -w0 "$P/ca.crt")}}]
users: [{name: u, user: {client-certificate-data: $(base64 -w0 "$P/$1.crt"), client-key-data: $(base64 -w0 "$P/$1.key")}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
Y
}
key ca
openssl req -x509 -new -key "$P/ca.key" -subj /CN=posenc-cluster-ca -days 30 -out "$P/ca.crt" \
  -addext keyUsage=critical,keyCertSign,cRLSign,digitalSignature
openssl genrsa -out "$P/sa.key" 2048 2>/dev/null
openssl rsa -in "$P/sa.key" -pubout -out "$P/sa.pub" 2>/dev/null
cert apiserver /CN=kube-apiserver "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:localhost,IP:127.0.0.1,IP:$NODE_IP,IP:$API_SVC"
cert apiserver-kubelet /O=system:masters/CN=apiserver-kubelet
cert front-proxy /CN=front-proxy
cert kubelet "/O=system:nodes/CN=system:node:$NODE" "DNS:$NODE,IP:$NODE_IP"
cert admin /O=system:masters/CN=admin
for c in kube-controller-manager kube-scheduler kube-proxy; do cert $c /CN=system:$c; done
for c in kubelet kube-controller-manager kube-scheduler kube-proxy; do conf $c; done
conf admin "$NODE_IP"

cat >"$STATE/containerd.toml" <<Y
version = 2
root = "$STATE/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = "$CRI"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "cluster.local/pause:1"
  # Without CAP_SYS_RESOURCE, no process may lower its OOM score, which a pod's sandbox would set to -998.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$STATE/cni"
Y
# ptp, not bridge: a pod's traffic is always routed, so Services need no bridge-nf-call-iptables
cat >"$STATE/cni/10-ptp.conflist" <<Y
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "ptp", "mtu": 1500, "ipam": {"type": "host-local", "ranges": [[{"subnet": "$POD_NET"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
Y
cat >"$STATE/kubelet.yaml" <<Y
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $P/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $P/kubelet.crt
tlsPrivateKeyFile: $P/kubelet.key
containerRuntimeEndpoint: unix://$CRI
cgroupDriver: cgroupfs
cgroupRoot: /$NAME
failCgroupV1: false
failSwapOn: false
clusterDNS: [$DNS_SVC]
clusterDomain: cluster.local
resolvConf: $STATE/resolv.conf
podLogsDir: $STATE/pods
maxOpenFiles: $(ulimit -Hn)
evictionHard: {memory.available: 100Mi, nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%"}
imageGCHighThresholdPercent: 100
Y
echo "nameserver 127.0.0.1" >"$STATE/resolv.conf"
cat >"$STATE/kube-proxy.yaml" <<Y
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: $STATE/kube-proxy.conf}
hostnameOverride: $NODE
clusterCIDR: $POD_NET
mode: iptables
# Sets no conntrack limits: they belong to the host's network namespace, and are read-only in ours.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
Y
cat >"$STATE/Corefile" <<Y
.:53 {
  bind $NODE_IP
  errors
  kubernetes cluster.local in-addr.arpa {
    kubeconfig $STATE/admin.conf
    ttl 1
  }
}
Y
printf '#!/bin/sh\n# reads a docker or OCI archive on stdin into the node\nexec ctr --address %s -n k8s.io images import "$@" -\n' "$CRI" >"$STATE/load"
chmod +x "$STATE/load"

# --- the node ---------------------------------------------------------------
say "starting"
for d in "${CGROUPS[@]}"; do
  mkdir -p "$d/$NAME/system"
  # Enables the controllers of v2. If v1 is mounted, too, v2 has no controllers; v2 alone is untested.
  if [ -e "$d/cgroup.controllers" ]; then
    read -ra controllers <"$d/cgroup.controllers" || true
    for p in "$d" "$d/$NAME"; do for c in "${controllers[@]}"; do echo "+$c" >"$p/cgroup.subtree_control"; done; done
  elif [ -e "$d/cpuset.cpus" ]; then
    for p in "$NAME" "$NAME/system"; do for f in cpus mems; do cat "$d/cpuset.$f" >"$d/$p/cpuset.$f"; done; done
  fi
done
# Without this, the whole node would have the weight of one process.
for d in "${CGROUPS[@]}"; do
  [ ! -e "$d/$NAME/cpu.shares" ] || echo 10240 >"$d/$NAME/cpu.shares" # ten times the default of v1
  [ ! -e "$d/$NAME/cpu.weight" ] || echo 1000 >"$d/$NAME/cpu.weight"  # and of v2
done
( # a subshell that moves itself into the cgroup, then becomes unshare
  for d in "${CGROUPS[@]}"; do echo "$BASHPID" >"$d/$NAME/system/cgroup.procs"; done
  exec setsid unshare --mount --net --pid --ipc --uts --fork --kill-child --mount-proc bash "$HERE/node.sh"
) </dev/null >"$STATE/log/node" 2>&1 &
outer=$!
for _ in $(seq 100); do pid=$(pgrep -P "$outer" 2>/dev/null) && break; sleep 0.05; done
echo "$pid $(cut -d' ' -f22 "/proc/$pid/stat")" >"$STATE/pid"
disown
for _ in $(seq 100); do [ "$(readlink "/proc/$pid/ns/net")" != "$(readlink /proc/self/ns/net)" ] && break; sleep 0.05; done
ip link add "$NAME" type veth peer name eth0 netns "$pid"
ip addr add "$HOST_IP/24" dev "$NAME"
ip link set "$NAME" up
ip route add "$POD_NET" via "$NODE_IP"
ip route add "$SVC_NET" via "$NODE_IP"

wait_for() { local _; for _ in $(seq 600); do "$@" >/dev/null 2>&1 && return; alive || { cat "$STATE/log/node"; exit 1; }; sleep 0.1; done; echo "no: $*" >&2; exit 1; }
wait_for test -e "$STATE/started"
say "API server ready"
wait_for kubectl get serviceaccount default
kubectl apply -f - >/dev/null <<Y
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec: {clusterIP: $DNS_SVC, ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kube-dns, namespace: kube-system, labels: {kubernetes.io/service-name: kube-dns}}
addressType: IPv4
endpoints: [{addresses: ["$NODE_IP"], conditions: {ready: true}}]
ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
Y
kubectl apply -f - >/dev/null <<Y
apiVersion: v1
kind: Service
metadata: {name: metrics-server, namespace: kube-system}
spec: {ports: [{name: https, port: 443, targetPort: 4443}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: metrics-server, namespace: kube-system, labels: {kubernetes.io/service-name: metrics-server}}
addressType: IPv4
endpoints: [{addresses: ["$NODE_IP"], conditions: {ready: true}}]
ports: [{name: https, port: 4443, protocol: TCP}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec: {group: metrics.k8s.io, version: v1beta1, groupPriorityMinimum: 100, versionPriority: 100, insecureSkipTLSVerify: true, service: {name: metrics-server, namespace: kube-system}}
Y
wait_for kubectl get node "$NODE"
kubectl wait --for=condition=Ready "node/$NODE" --timeout=60s >/dev/null
say "node ready: export KUBECONFIG=$STATE/admin.conf PATH=$BIN:\$PATH"
