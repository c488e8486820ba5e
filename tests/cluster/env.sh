# shellcheck shell=bash disable=SC2034
# Versions, places and addresses for up.sh, node.sh, down.sh, cluster.sh and deploy/check.sh, which source
# this file.
K8S_VERSION=v1.35.4
# Projects whose types the manifests are checked against.
KSERVE_VERSION=v0.15.2
GATEWAY_API_VERSION=v1.4.0
KEDA_VERSION=v2.17.2
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=${CLUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/posenc-cluster} # binaries, images: kept by down.sh
STATE=${CLUSTER_STATE:-/tmp/posenc-cluster} # one running cluster: removed by down.sh
BIN=$CACHE/bin-$K8S_VERSION
NAME=${CLUSTER_NAME:-posenc0} # host end of the veth; cgroup name
HOST_IP=10.213.0.1 NODE_IP=10.213.0.2 NODE_NET=10.213.0.0/24         # the veth between host and node
POD_NET=10.214.0.0/16 SVC_NET=10.215.0.0/16 API_SVC=10.215.0.1 DNS_SVC=10.215.0.10
NODE=node1
CRI=$STATE/containerd.sock
# module PATH@VERSION: fetches a Go module, and prints its folder.
module() { go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p'; }
# All mounted cgroup hierarchies: several of v1, one of v2, or both.
mapfile -t CGROUPS < <(findmnt -rno TARGET -t cgroup,cgroup2)
