# shellcheck shell=bash
# Puts a new enough Go on PATH. Scripts source this file; their variable `root`
# is the repository's path.
go_env() {
  "$root/client/go/run" need
  # The toolchain that `need` fetches if the system's is missing or too old.
  local fetched
  fetched=$(ls -d "$root"/build/clients/go/go1*/bin 2>/dev/null | tail -n 1 || true)
  [[ -z $fetched ]] || PATH=$fetched:$PATH
}
