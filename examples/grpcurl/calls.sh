#!/usr/bin/env bash
# Makes calls by hand: calls.sh ADDRESS (default 127.0.0.1:50051)
# grpcurl uses the server's reflection and needs no .proto. Small tensors may be
# written as `values`; `data` is base64 in JSON.
set -euo pipefail
address=${1:-127.0.0.1:50051}
service=posenc.v1.PositionalEncodingService

call() { grpcurl -plaintext -max-time 30 "${@:2}" "$address" "$service/$1"; }

echo "--- what is served"
grpcurl -plaintext "$address" list "$service"

echo "--- version and limits: max_request_bytes is what one message may have"
call GetServerInfo -d '{}' | grep -E 'version|Bytes'

echo "--- a preset's frequencies"
call ResolveRope -d '{"rope": {"preset": "llama-3.1-8b"}}' | grep -E 'ropeTheta|contentHash'

echo "--- one token at position 1, a head of 4 channels in half-split pairs"
call ApplyRope -d '{
  "rope": {"spec": {"pairing": "PAIRING_HALF_SPLIT"}},
  "positions": {"start": 1},
  "layout": "LAYOUT_BSHD",
  "q": {"dtype": "DTYPE_FLOAT32", "shape": [1, 1, 1, 4], "values": [1, 0, 0, 1]}}'

echo "--- a table of 8192 rows is over grpcurl's 4 MiB: -max-msg-sz raises that"
call BuildTable -max-msg-sz 536870912 \
  -d '{"rope": {"preset": "llama-3.1-8b"}, "positions": {"start": 0}, "rows": 8192}' |
  grep -cE '"(cos|sin)"'

echo "--- announced: the bytes of the serialized request; more is no error"
call BuildTable -H 'posenc-message-bytes: 64' \
  -d '{"rope": {"spec": {"pairing": "PAIRING_HALF_SPLIT", "rotary_dim": 4}}, "positions": {"start": 0}, "rows": 2}' |
  grep -c shape

echo "--- an error: every wrong field, and a reason to branch on"
! call ApplyRope -d '{"rope": {"preset": "llama-3.1-8B"}}' 2>&1

echo "--- health"
grpcurl -plaintext "$address" grpc.health.v1.Health/Check
