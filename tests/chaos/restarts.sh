#!/usr/bin/env bash
# Loads three servers through one client, and ends and restarts each in turn: by
# SIGTERM without retries, by SIGKILL with the retries of the published service
# config. No call may fail.
#   restarts.sh BIN_DIR [KILLS] [STARTS]     (100, 50)
# Ends only processes that it started.
set -euo pipefail
bin=$(cd "$1" && pwd)
kills=${2:-100} starts=${3:-50}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)

rate=200            # calls a second
lame_duck_ms=500    # clients that watch health leave in a few milliseconds
drain_ms=5000
exit_ms=$((lame_duck_ms + drain_ms + 1000))
ready_ms=250        # the median start
patience=100        # tenths of a second for anything else

declare -a pid port
load=
faults=0
# Nothing writes to this pipe, so nap() can wait by a read with a timeout,
# without starting a process.
mkfifo "$work/never"
exec {never}<>"$work/never"

nap() { read -r -t "$1" -u "$never" || true; }
now() { local time=${EPOCHREALTIME/[.,]/}; echo $((time / 1000)); }

die() {
  echo "chaos: $*" >&2
  exit 1
}

finish() {
  local each
  for each in "${pid[@]}" $load; do kill -KILL "$each" 2>/dev/null || true; done
  { wait; } 2>/dev/null
  rm -rf "$work"
}
trap finish EXIT

# within TENTHS COMMAND...: waits until the command succeeds, for at most TENTHS
# tenths of a second.
within() {
  local end=$(($(now) + $1 * 100))
  shift
  until "$@"; do
    (($(now) < end)) || return 1
    nap 0.01
  done
}

# start N: starts server N on its port. The first start picks a free port below
# the kernel's range of ports for outgoing connections, so that no outgoing
# connection takes the port before the next start.
start() {
  local n=$1 try
  for ((try = 0; try < 20; ++try)); do
    [[ -n ${port[n]:-} ]] || port[n]=$((10000 + RANDOM % 20000))
    rm -f "$work/ready$n"
    "$bin/posencd" --listen "127.0.0.1:${port[n]}" --lame-duck "${lame_duck_ms}ms" \
      --drain-timeout "${drain_ms}ms" --ready-file "$work/ready$n" >>"$work/log$n" 2>&1 &
    pid[n]=$!
    within "$patience" started "$n" || die "server $n neither starts nor ends"
    [[ ! -s $work/ready$n ]] || return 0
    wait "${pid[n]}" || true
    [[ -z ${running:-} ]] || die "server $n did not start again: $(tail -n 1 "$work/log$n")"
    unset "port[n]"
  done
  die "no free port"
}
started() { [[ -s $work/ready$1 ]] || ! kill -0 "${pid[$1]}" 2>/dev/null; }

# Whether the load is connected to server N.
connected() {
  [[ -n $(ss -Htn state established "( sport = :${port[$1]} )" 2>/dev/null) ]]
}
all_connected() { connected 0 && connected 1 && connected 2; }
serving() { "$bin/posencd" --probe "127.0.0.1:${port[$1]}" 2>/dev/null; }
loaded() { kill -0 "$load" 2>/dev/null || die "posenc-load ended: $(tail -n 3 "$work/load.log")"; }

row() { printf '%-34s %7s %9s %7s %14s %14s  %s\n' "$@"; }

# phase NAME SIGNAL LOAD_ARGUMENT...: ends the servers in turn by the signal, and
# restarts them, under a load; prints a row.
phase() {
  local name=$1 signal=$2 i n began code took longest=0 calls failed pause errors
  shift 2
  "$bin/posenc-load" --server "ipv4:127.0.0.1:${port[0]},127.0.0.1:${port[1]},127.0.0.1:${port[2]}" \
    --rates "$rate" --mix ApplyRope:4,BuildTable:1 --size 16KiB --verify 0.05 --duration 1h \
    --max-error-rate 1 --quiet --json "$work/report.json" "$@" >"$work/load.log" 2>&1 &
  load=$!
  within "$patience" all_connected || die "the load does not reach every server"
  nap 1.5 # its warm-up, which is not counted
  for ((i = 0; i < kills; ++i)); do
    loaded
    n=$((i % 3))
    began=$(now)
    kill -"$signal" "${pid[n]}"
    code=0
    wait "${pid[n]}" 2>/dev/null || code=$?
    took=$(($(now) - began))
    ((took <= longest)) || longest=$took
    [[ $signal != TERM || $code == 0 ]] || { echo "exit code $code after SIGTERM" >&2; faults=1; }
    start "$n"
    within "$patience" serving "$n" || die "server $n does not serve again"
    # Without this wait, kills would be faster than any client's reconnect.
    within $((patience * 3)) connected "$n" || die "the load does not come back to server $n"
  done
  kill -INT "$load"
  wait "$load" || true
  load=
  read -r calls failed pause errors < <(python3 "$here/figure.py" "$work/report.json")
  local exits=-
  [[ $signal != TERM ]] || exits="$longest ms"
  row "$name" "$kills" "$calls" "$failed" "$pause ms" "$exits" "$errors"
  ((calls > kills && failed == 0)) || faults=1
  [[ $signal != TERM ]] || ((longest <= exit_ms)) || { echo "exit took longer than $exit_ms ms" >&2; faults=1; }
}

# Measures STARTS starts, from the call to the ready file.
measure_starts() {
  local i began times=() median
  for ((i = 0; i < starts; ++i)); do
    rm -f "$work/ready"
    began=$(now)
    "$bin/posencd" --listen "unix:$work/socket" --ready-file "$work/ready" >/dev/null &
    pid[3]=$!
    until [[ -s $work/ready ]]; do
      (($(now) < began + patience * 100)) || die "not ready"
      nap 0.001
    done
    times+=($(($(now) - began)))
    kill -TERM "${pid[3]}"
    wait "${pid[3]}" || faults=1
    unset "pid[3]"
  done
  mapfile -t times < <(printf '%s\n' "${times[@]}" | sort -n)
  median=${times[starts / 2]}
  echo "ready after $median ms at the median of $starts starts, ${times[starts - 1]} ms at most (bound of the median: $ready_ms)"
  ((median <= ready_ms)) || faults=1
}

measure_starts
for n in 0 1 2; do start "$n"; done
running=yes
row phase kills calls failed "longest pause" "longest exit" errors
phase "SIGTERM and restart, no retries" TERM --no-retry
phase "kill -9 and restart, retries" KILL
((faults == 0)) || die "a figure above is not reached"
