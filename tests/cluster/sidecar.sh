# shellcheck shell=bash disable=SC2034,SC2154,SC2317
# Two containers of a pod share memory (the overlay sidecar), and each is killed
# in turn while a third process of the pod calls. Part of cluster.sh, whose
# functions and variables it uses.

# Calls per second, and seconds of a row. A killed container is back within two
# seconds.
sidecar_rate=100
sidecar_seconds=20

# in_pod CONTAINER COMMAND...: runs the command in the container of $pod.
in_pod() { k exec "$pod" -c "$1" -- "${@:2}"; }
container_state() { k get pod "$pod" -o "jsonpath={.status.containerStatuses[?(@.name==\"$1\")].$2}"; }
has_restarted() { [[ $(container_state "$1" restartCount) -gt $2 && $(container_state "$1" ready) == true ]]; }

# Kills the container's process by SIGKILL, as the kernel does when memory is
# short.
kill_container() {
  local before
  before=$(container_state "$1" restartCount)
  nodectl tasks kill --signal SIGKILL "$(container_state "$1" containerID | sed 's|containerd://||')" &&
    until_true 60 has_restarted "$1" "$before"
}

# shared_calls CONTAINER ARGUMENT...: makes the calls of a row in CONTAINER, over
# the unix socket.
shared_calls() {
  in_pod "$1" posenc-load --server unix:/run/posenc/posenc.sock --size 64KiB --verify 1 --rates "$sidecar_rate" \
    --warm-up 1s --duration "${sidecar_seconds}s" --timeout 10s --max-in-flight 256 --max-error-rate 1 --quiet \
    --json /run/posenc/report.json "${@:2}"
}

none_wrong() {
  python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["steps"][0]["wrong"] == 0' "$work/report.json"
}

# shared_row NAME ALLOWED CONTAINER KILLED [ARGUMENT...]: calls from CONTAINER,
# with these arguments, while KILLED is killed. More failed calls than ALLOWED
# are a fault, and so is any wrong answer, or a call that failed for another
# reason than the server's absence.
shared_row() {
  local name=$1 allowed=$2 calls failed pause errors began=$SECONDS code=0
  shared_calls "$3" "${@:5}" >"$work/load.log" 2>&1 &
  load=$!
  sleep 4 # the warm-up, and some calls before the event
  kill_container "$4" >"$work/out" 2>&1 || code=$?
  wait "$load" || code=$?
  load=
  in_pod "$3" cat /run/posenc/report.json >"$work/report.json"
  read -r calls failed pause errors < <(python3 "$HERE/../chaos/figure.py" "$work/report.json")
  printf '%-46s %7s %7s %9s ms %5s s  %s\n' "$name" "$calls" "$failed" "$pause" "$((SECONDS - began))" "$errors"
  if ((failed > allowed)) || [[ ! $errors =~ ^(-|UNAVAILABLE:[0-9]+)$ ]] || ! none_wrong; then
    bad "$name" "$failed calls"
    python3 -c 'import json, sys; step = json.load(open(sys.argv[1]))["steps"][0]
print({key: step[key] for key in ("failed", "unsent", "wrong", "errors")})' "$work/report.json"
  fi
  if ((code)); then
    bad "$name: the event itself"
    tail -n 5 "$work/out" "$work/load.log"
  fi
}

# Each row has its own pod, because kubelet waits before it restarts a container
# that ended twice.
fresh_pod() {
  local old
  old=$(first)
  k delete pod "$old" --wait=true >/dev/null
  rolled_out && pod=$(first)
}

share_memory() {
  local mode
  ns=posenc
  gone() { ! kubectl get namespace posenc | grep Terminating; }
  until_true 60 gone
  kubectl apply --validate=strict -k "$HERE/manifests/sidecar" >/dev/null
  hold "overlay sidecar, strict; both containers ready" rolled_out
  pod=$(first)
  volume() { [[ $(in_pod posenc stat -f -c %T /shm) == tmpfs ]] && in_pod posenc df -h --output=size,target /shm; }
  hold "in the pod: the volume is memory" volume
  files() { in_pod application bash -c 'stat -c "%u:%g %a %s" /shm/*'; }
  until_true 20 files || bad "the application makes its file"
  ok "in the pod: the file's owner, mode and size" "$(files)"
  for mode in in-place out-of-place; do
    hold "16 MiB $mode, every answer checked" in_pod application posenc-load --server unix:/run/posenc/posenc.sock \
      --size 16MiB --variants 1 --shared-memory "$mode" --in-flight 1 --calls 50 --verify 1 --quiet
  done

  printf '\n%-46s %7s %7s %12s %7s  %s\n' "$sidecar_rate calls a second in shared memory" calls failed \
    "longest" took errors
  # While the server is down, each call fails at once, unless it may be retried.
  # kubelet restarts the server within two seconds.
  shared_row "server killed; in place" $((10 * sidecar_rate)) application posenc --shared-memory in-place
  fresh_pod
  shared_row "server killed; out of place, with retries" $((10 * sidecar_rate)) application posenc --shared-memory out-of-place
  fresh_pod
  # No other container may have files in /shm, because the application removes
  # all of them when it starts.
  shared_row "application killed; another caller" 0 posenc application
  # The killed application's files are gone, and the new one has made its own.
  one_region() { [[ $(in_pod posenc bash -c 'echo /shm/*' | wc -w) == 1 ]]; }
  hold "the killed application's file is gone" until_true 10 one_region
  kubectl delete -k "$HERE/manifests/sidecar" --ignore-not-found --wait=false >/dev/null
}
