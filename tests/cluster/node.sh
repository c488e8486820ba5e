#!/usr/bin/env bash
# PID 1 of the node. It runs in mount, network, PID, IPC and UTS namespaces that
# up.sh makes for it, so every daemon and container ends with it.
set -euo pipefail
# shellcheck source=tests/cluster/env.sh
. "$(dirname "$0")/env.sh"

mount --make-rshared /
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock /run/netns
hostname "$NODE"
mkdir -p "$STATE"/{log,pods,kubelet,containerd,var-log,netlib}
# These two paths are constants in the code of kubelet and of the CNI plugins.
mkdir -p /var/log/containers /var/lib/cni
mount --bind "$STATE/var-log" /var/log/containers
mount --bind "$STATE/netlib" /var/lib/cni

# up.sh hands over eth0 as the other end of its veth
for _ in $(seq 100); do [ -e /proc/self/net/dev ] && grep -q eth0: /proc/self/net/dev && break; sleep 0.05; done
ip link set lo up
ip addr add "$NODE_IP/24" dev eth0
ip link set eth0 up
ip route add default via "$HOST_IP"
echo 1 >/proc/sys/net/ipv4/ip_forward

export PATH=$BIN:/usr/sbin:/usr/bin:/sbin:/bin
declare -A name
start() { # start NAME COMMAND...: in the background, its output in log/NAME
  local n=$1; shift
  "$@" >"$STATE/log/$n" 2>&1 &
  name[$!]=$n
}
ready() { local i; for i in $(seq 600); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done; echo "not ready: $*"; return 1; }

P=$STATE/pki
start etcd etcd --data-dir "$STATE/etcd" --unsafe-no-fsync --log-level warn \
  --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
  --listen-peer-urls http://127.0.0.1:2380
start kube-apiserver kube-apiserver --etcd-servers http://127.0.0.1:2379 --advertise-address "$NODE_IP" \
  --secure-port 6443 --service-cluster-ip-range "$SVC_NET" --allow-privileged \
  --client-ca-file "$P/ca.crt" --tls-cert-file "$P/apiserver.crt" --tls-private-key-file "$P/apiserver.key" \
  --kubelet-certificate-authority "$P/ca.crt" --kubelet-client-certificate "$P/apiserver-kubelet.crt" \
  --kubelet-client-key "$P/apiserver-kubelet.key" --kubelet-preferred-address-types InternalIP \
  --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$P/sa.pub" \
  --service-account-signing-key-file "$P/sa.key" --authorization-mode Node,RBAC \
  --enable-admission-plugins NodeRestriction --event-ttl 1h \
  --requestheader-client-ca-file "$P/ca.crt" --requestheader-allowed-names front-proxy \
  --requestheader-username-headers X-Remote-User --requestheader-group-headers X-Remote-Group \
  --requestheader-extra-headers-prefix X-Remote-Extra- \
  --proxy-client-cert-file "$P/front-proxy.crt" --proxy-client-key-file "$P/front-proxy.key"
start containerd containerd --config "$STATE/containerd.toml"
ready ctr --address "$CRI" version
for i in "$CACHE"/images/*.tar; do ctr --address "$CRI" -n k8s.io images import "$i" >>"$STATE/log/import" 2>&1; done
ready kubectl --kubeconfig "$STATE/admin.conf" get --raw /readyz
start kube-controller-manager kube-controller-manager --kubeconfig "$STATE/kube-controller-manager.conf" \
  --leader-elect=false --use-service-account-credentials --root-ca-file "$P/ca.crt" \
  --service-account-private-key-file "$P/sa.key" --cluster-signing-cert-file "$P/ca.crt" \
  --cluster-signing-key-file "$P/ca.key" --service-cluster-ip-range "$SVC_NET" \
  --horizontal-pod-autoscaler-sync-period 5s --horizontal-pod-autoscaler-initial-readiness-delay 5s \
  --horizontal-pod-autoscaler-cpu-initialization-period 10s
start kube-scheduler kube-scheduler --kubeconfig "$STATE/kube-scheduler.conf" --leader-elect=false
start kubelet kubelet --config "$STATE/kubelet.yaml" --kubeconfig "$STATE/kubelet.conf" --root-dir "$STATE/kubelet" \
  --hostname-override "$NODE" --node-ip "$NODE_IP" --v 1
start kube-proxy kube-proxy --config "$STATE/kube-proxy.yaml"
start coredns coredns -conf "$STATE/Corefile"
start metrics-server metrics-server --kubeconfig "$STATE/admin.conf" \
  --authentication-kubeconfig "$STATE/admin.conf" --authorization-kubeconfig "$STATE/admin.conf" --secure-port 4443 \
  --cert-dir "$STATE/metrics-server" --kubelet-certificate-authority "$P/ca.crt" \
  --kubelet-preferred-address-types InternalIP --kubelet-request-timeout 5s --metric-resolution 10s
touch "$STATE/started"

trap 'exit 0' TERM INT
while :; do # bash as PID 1 also reaps processes that the container shims leave behind
  if wait -n -p pid; then rc=0; else rc=$?; fi
  [ -n "${pid:-}" ] || { sleep 1; continue; }
  echo "${name[$pid]:-$pid} ended with status $rc" >>"$STATE/log/node"
done
