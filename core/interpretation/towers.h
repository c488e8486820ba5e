// Facts that the classes of vision towers know and their configurations do not
// say: one row of data per family of transformers classes (rows/towers.json).

#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "core/rope/spec.h"

namespace posenc::core::interpretation {

// The frequencies of an axis with n of a head's d / 2 pairs.
enum class TowerFrequencies {
  // theta^(-i/n).
  kOfAxis,
  // Every second one of theta^(-2i/d): the first axis has those of even i, the
  // next those of odd i (Pixtral).
  kShared,
  // theta^(-4i/d), i/d first: the class counts its exponents from 0 to 1 in
  // steps of 4/d (DINOv3).
  kUnitSteps,
  // theta^(-2i/r), r = int(head_dim * partial_rotary_factor); the heads are
  // rotated as one of the model's whole width (EfficientLoFTR).
  kOfWidth,
};

// The part of rope_parameters that a class reads.
enum class TowerDict {
  kAxial,      // the base, and refuses every type but its own
  kThetaOnly,  // the base, whatever the type
  kNone,       // nothing: rope_theta stands beside
};

struct Tower {
  absl::string_view model_types;  // separated by blanks
  // Model types whose vision_config is this tower's, whatever type it names;
  // and those whose vision_config is this tower's if it names none.
  absl::string_view parents = {};
  absl::string_view default_of = {};

  Pairing pairing = Pairing::kHalfSplit;
  bool halves_per_axis = false;
  TowerFrequencies frequencies = TowerFrequencies::kOfAxis;
  // Axes of a position, one letter each: time, height, width.
  absl::string_view axes = "hw";
  // The same letters in the order in which pairs follow them: the first pairs
  // the first letter, or in turn.
  absl::string_view pair_axes = "hw";
  bool alternating = false;

  double theta = 10000;
  TowerDict dict = TowerDict::kAxial;
  // head_dim, if `reads_head_dim`; or width / (heads * divisor).
  bool reads_head_dim = true;
  absl::string_view width_key = "hidden_size";
  std::int64_t width = 0;
  absl::string_view heads_key = "num_attention_heads";
  std::int64_t heads = 16;
  absl::string_view divisor_key = {};
  std::int64_t head_dim = 0;  // that an absent one stands for; 0: none

  // The positions of a grid: see TowerGrid.
  std::int32_t merge = 1;
  absl::string_view merge_key = {};
  std::int32_t first = 0;
  std::int32_t leading = 0;
  std::int32_t trailing = 0;
  std::int64_t window = 0;  // default of window_size; 0: no such rule
  bool centers = false;

  absl::string_view warning = {};
  // One axis, of images, frames or sound: it is read as language models are.
  bool sequence = false;
  // The reason why the class's computation is no rotation; empty if it is one.
  absl::string_view no_rotation = {};
};

}  // namespace posenc::core::interpretation
