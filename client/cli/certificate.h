// The certificate of a cache: whether keys that an engine cached, moved by
// Reposition, are the keys that the engine itself has at the new positions.
//
// Layer by layer and head by head the keys of `before` are turned by
// shift * w_i, in long double, and held against `after`: the error of a pair is
// counted in ulps of the pair's length in the keys' dtype. A layer that is
// beyond its bound is explained from its own keys.
//
// `after` is made in either of two ways: (a) the same key before its rotation,
// through the engine's rotary module at both positions: exact, and held to the
// bound; (b) two prefills with positions apart (`measured`): equal in exact
// arithmetic, but noise grows with depth, so layers above 0 are judged by the
// angles that their keys show.
//
// Bound for keys of 16 bits: 2 ulps (inputs 0.71, Reposition 0.5, the engine
// 0.5, its float32 table 0.29), or 4 ulps if the engine's tables have the dtype
// of the keys. For keys of float32 and float64: 4 ulps, since tables are of
// their dtype; or 2^31 ulps of float64, 4 of float32, if an engine turns keys
// of float64 by tables of float32. What angles are off by is added to that
// (key_motion.h).

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
  // In ulps; by default 2 for keys of 16 bits, and 4 for float32 and float64.
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

// Errors have exit code 2: flags that are missing or make no sense. What is
// wrong with a file is in the diagnosis.
absl::StatusOr<Certificate> Certify(const CertificateFlags& flags);

// The JSON of a diagnosis with "certificate", "files" and "made".
std::string CertificateJson(const Certificate& certificate);

}  // namespace posenc::cli
