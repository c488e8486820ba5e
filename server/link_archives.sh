#!/bin/sh
# link_archives.sh COMMAND...: links as COMMAND does, but with gRPC's archives in
# place of its shared libraries. See grpc_archives.cmake.
set -eu
for argument; do
  shift
  case $argument in
    */libgrpc++.so* | */libgrpc.so* | */libgpr.so* | */libupb.so* | */libaddress_sorting.so*)
      argument=${argument%%.so*}.a
      ;;
  esac
  set -- "$@" "$argument"
done
exec "$@"
