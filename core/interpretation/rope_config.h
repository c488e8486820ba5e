// Reads one dict of rotary parameters: a flat rope_scaling or rope_parameters,
// or one layer type's entry of a nested one.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "core/interpretation/class_defaults.h"
#include "core/interpretation/config.h"
#include "core/interpretation/families.h"
#include "core/interpretation/json_object.h"
#include "core/interpretation/profile.h"
#include "core/interpretation/provenance.h"

namespace posenc::core::interpretation {

struct RopeDict {
  JsonObject config;  // the language model's part
  JsonObject dict;
  const Family& family;
  const ProfileRules& rules;
  std::string model_type;
  // Null if layers of the model do not differ by theta.
  const LayerKind* kind = nullptr;
  bool nested = false;
  // False if the class takes no scaling, whatever the dict says.
  bool scales = true;
  // True for a layer that rope_scaling_layers leaves out.
  bool is_unscaled_layer = false;
  // True if the dict is the class's own, for a configuration without one.
  bool from_class = false;
  // This layer's own base (layer_rope_theta).
  std::optional<double> layer_theta = {};
  // Null under profiles that do not read by transformers' classes.
  const ClassDefaults* defaults = nullptr;
  // Width of heads of these layers; 0 if the configuration gives none.
  Value head = {};
  // The scaling that these layers have, as RopeType(); "default": none.
  std::string type = {};

  // The reader's row of that rule for the model; null if there is none.
  const ReadingRow* Row(ReadingRule rule) const {
    return FindReadingRow(rules, model_type, rule);
  }
  bool is_hf() const { return rules.profile == Profile::kHf; }
  bool by_class() const { return ReadsByClass(rules); }
  // The reader's class, for messages.
  std::string Class() const { return ClassOf(model_type, rules.project); }
  Report& report() const { return config.report(); }
};

// Warns of numbers that transformers accepts but cannot compute with.
void WarnOfRange(const RopeDict& from, const RopeSpec& spec);

// Adds to `rope` what the dict says.
void ReadRopeDict(RopeDict from, ModelRope* rope);

// Width of a head of layers of that type; 0 and an error if the configuration
// gives none.
Value HeadDim(const JsonObject& config, const Family& family,
              absl::string_view layer_type);

// Number of channels that rotate, of from.head.
Value ReadWidth(const RopeDict& from);

// The error that as many channels cannot rotate.
void FailWidth(const RopeDict& from, const Value& width);

// The share of a head's channels that rotates, as the file gives it; and what
// the class takes for an absent one.
std::optional<Value> PartialFactor(const RopeDict& from);
double DefaultShare(const RopeDict& from);

// Base of the frequencies.
double ReadTheta(const RopeDict& from);

// Sets spec->axes: the dict's sections, or else the class's. rotary_dim is read
// before. Sections that cannot be are an error.
void ReadAxes(const RopeDict& from, RopeSpec* spec);

}  // namespace posenc::core::interpretation
