// Specs that the tests of frequencies start from.

#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/rope/spec.h"

namespace posenc::core {

inline RopeSpec Plain(std::int32_t rotary_dim, double theta = 10000) {
  RopeSpec spec;
  spec.rotary_dim = rotary_dim;
  spec.rope_theta = theta;
  spec.pairing = Pairing::kHalfSplit;
  return spec;
}

template <typename Scaling>
RopeSpec With(RopeSpec spec, Scaling scaling) {
  spec.scaling = std::move(scaling);
  return spec;
}

inline RopeSpec WithAxes(RopeSpec spec, AxisAssignment assignment,
                         std::vector<std::int32_t> sections) {
  spec.axes = RotaryAxes{assignment, std::move(sections)};
  return spec;
}

inline YarnScaling Yarn(double factor, std::int64_t original) {
  YarnScaling yarn;
  yarn.factor = factor;
  yarn.original_max_position_embeddings = original;
  return yarn;
}

inline LongRopeScaling LongRope(std::int32_t pairs) {
  LongRopeScaling longrope;
  for (int i = 0; i < pairs; ++i) {
    longrope.short_factor.push_back(1 + 0.01 * i);
    longrope.long_factor.push_back(1.1 + 0.9 * i);
  }
  longrope.original_max_position_embeddings = 4096;
  longrope.factor = 32;
  return longrope;
}

}  // namespace posenc::core
