// The certificate of a KV cache. It says whether Reposition moves an engine's
// cached keys to the keys that the engine itself computes at the new positions.
//
// The flags name two files of keys, `cache` and `after`. Pair i of every key of
// `cache` is rotated by the angle shift * w_i in long double, and compared with
// `after`. w_i is the frequency of pair i. The error of a pair is measured in
// ulps of the pair's length in the keys' dtype. If a layer exceeds its bound,
// its keys are compared with moves that engines make by mistake.
//
// `after` is made in one of two ways. (a) The engine's rotary module rotates
// the same key to both positions. These keys have only rounding errors, so the
// bound applies. (b) The engine makes two prefills at different positions
// (`measured`). The keys of the two prefills agree in exact arithmetic, but
// noise grows with the depth of a layer. Layers above 0 are therefore judged by
// the angles of their keys.
//
// The bound for keys of 16 bits is 2 ulps. This is the sum of four errors: 0.71
// ulp from the inputs, 0.5 ulp from Reposition, 0.5 ulp from the engine, and
// 0.29 ulp from the engine's float32 table. The bound is 4 ulps if the engine's
// tables have the dtype of the keys. The bound for float32 and float64 keys is
// also 4 ulps, because their tables have the dtype of the keys. If an engine
// rotates float64 keys with float32 tables, the bound is 4 ulps of float32,
// which are 2^31 ulps of float64. The error of angles is added to the bound.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/doctor/doctor.h"
#include "posenc/v1/service.pb.h"

namespace posenc::cli {

struct CertificateFlags {
  std::string cache, after, config, layers;
  v1::Layout layout = v1::LAYOUT_UNSPECIFIED;
  std::optional<std::int64_t> start, shift;
  // A bound in ulps; by default 2 for keys of 16 bits, and 4 for float32 and
  // float64.
  std::optional<double> dtype_bound;
  bool measured = false;
};

struct LayerCertificate {
  std::int32_t layer = 0;
  std::int64_t heads = 0;
  std::int64_t elements = 0;
  double max_error_ulps = 0;
  double bound_ulps = 0;
  bool certified = false;
  std::string encoding_hash;
};

struct Certificate {
  core::doctor::Diagnosis diagnosis;  // inputs, and cache.* findings
  std::vector<LayerCertificate> layers;
  std::string cache_sha256, after_sha256;
  bool measured = false;
};

// Makes a certificate. Missing or contradictory flags are errors with exit code
// 2. Faults of files are in the diagnosis.
absl::StatusOr<Certificate> Certify(const CertificateFlags& flags);

}  // namespace posenc::cli
