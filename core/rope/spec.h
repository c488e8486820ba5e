// A rotary position encoding (RoFormer, arXiv:2104.09864), as
// posenc.v1.RopeSpec describes it, with the same names (except
// attention_factor), defaults and numbers.

#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

namespace posenc::core {

enum class Pairing { kUnspecified = 0, kHalfSplit = 1, kInterleaved = 2 };
enum class RotarySlice { kLeading = 1, kTrailing = 2 };
enum class AnglePrecision { kExact = 1, kFloat32 = 2 };
enum class AxisAssignment {
  kUnspecified = 0,
  kSectioned = 1,
  kInterleaved = 2,
  kAlternatingTail = 3,
  kPerAxis = 4,
};

struct LinearScaling {
  double factor = 0;
};
struct NtkScaling {
  double factor = 0;
};
struct DynamicNtkScaling {
  double factor = 0;
  std::int64_t max_position_embeddings = 0;
};
struct YarnScaling {
  double factor = 0;
  std::int64_t original_max_position_embeddings = 0;
  std::optional<double> beta_fast;
  std::optional<double> beta_slow;
  std::optional<double> attention_factor;
  std::optional<double> mscale;
  std::optional<double> mscale_all_dim;
  std::optional<bool> truncate;
};
struct LongRopeScaling {
  std::vector<double> short_factor;
  std::vector<double> long_factor;
  std::int64_t original_max_position_embeddings = 0;
  std::optional<double> factor;
  std::optional<double> attention_factor;
  std::optional<double> short_mscale;
  std::optional<double> long_mscale;
};
struct Llama3Scaling {
  double factor = 0;
  double low_freq_factor = 0;
  double high_freq_factor = 0;
  std::int64_t original_max_position_embeddings = 0;
};
struct ProportionalScaling {
  std::optional<double> factor;
  std::int32_t rotating_pairs = 0;
};
struct ExplicitFrequencies {
  std::vector<double> values;  // [heads, axes, rotary_dim / 2]
  std::int32_t heads = 0;
  std::int32_t axes = 0;
};

struct RotaryAxes {
  AxisAssignment assignment = AxisAssignment::kUnspecified;
  std::vector<std::int32_t> sections;
  std::vector<double> axis_thetas;
  bool halves_per_axis = false;
  std::vector<std::int32_t> position_axes;
};

struct XPos {
  std::optional<double> scale_base;
  std::optional<double> gamma;
  double center = 0;
};

struct RopeSpec {
  std::int32_t rotary_dim = 0;
  RotarySlice slice = RotarySlice::kLeading;
  std::optional<double> rope_theta;
  Pairing pairing = Pairing::kUnspecified;
  Pairing output_pairing = Pairing::kUnspecified;
  // RopeSpec.amplitude: replaces the factor that the scaling implies.
  std::optional<double> attention_factor;
  bool reverse = false;
  AnglePrecision angle_precision = AnglePrecision::kExact;
  std::optional<RotaryAxes> axes;
  std::optional<XPos> xpos;
  bool nope = false;
  std::variant<std::monostate, LinearScaling, NtkScaling, DynamicNtkScaling,
               YarnScaling, LongRopeScaling, Llama3Scaling, ProportionalScaling,
               ExplicitFrequencies>
      scaling;
};

// Position-dependent temperature: q *= 1 + beta * ln(1 + floor((p + offset) /
// floor_scale)).
struct QueryScale {
  double beta = 0;
  double floor_scale = 0;
  std::int64_t offset = 0;
};

}  // namespace posenc::core
