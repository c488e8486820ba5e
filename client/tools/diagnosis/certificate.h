// The certificate of a cache. It tells whether Reposition moves an engine's
// cached keys to the keys that the engine itself computes at the new positions.
//
// The keys of `before` in every layer and head are rotated by shift * w_i, in
// long double, and compared with `after`. The error of a pair is measured in
// ulps of the pair's length in the keys' dtype. A layer beyond its bound is
// explained from its own keys.
//
// `after` is made in one of two ways. (a) The engine's rotary module rotates
// the same key to both positions: this is exact, and the bound applies. (b) Two
// prefills at different positions (`measured`): their keys are equal in exact
// arithmetic, but noise grows with depth, so layers above 0 are judged by the
// angles of their keys.
//
// Bound for keys of 16 bits: 2 ulps (inputs 0.71, Reposition 0.5, the engine
// 0.5, its float32 table 0.29), or 4 ulps if the engine's tables have the dtype
// of the keys. For keys of float32 and float64: 4 ulps, since tables have their
// dtype; or 2^31 ulps of float64, 4 of float32, if an engine rotates keys of
// float64 with tables of float32. The error of angles is added (key_motion.h).

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
// 2. The diagnosis has the faults of files.
absl::StatusOr<Certificate> Certify(const CertificateFlags& flags);

// Returns the JSON of a diagnosis with "certificate", "files" and "made".
std::string CertificateJson(const Certificate& certificate);

}  // namespace posenc::cli
