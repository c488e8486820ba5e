// One configuration and every reader's interpretation of it, for the checks of
// a config.json.

#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/doctor/finding.h"
#include "core/doctor/readers.h"
#include "core/interpretation/classes/families.h"
#include "nlohmann/json.hpp"

namespace posenc::core::doctor {

// A dict of rotary parameters, with its path in the file and its pointer in the
// language model's part.
struct NamedDict {
  std::string path;
  const json* dict;
  json::json_pointer place;
};

// True if a key in a dict of rotary parameters only says how positions are
// scaled.
bool IsScalingKey(absl::string_view key);

// The rope of each group of layers, or an error if the rope cannot be read.
using Ropes = std::vector<absl::StatusOr<ResolvedRope>>;

// True if both ropes have the same content hash, or if neither rope can be
// read.
bool IsSameRope(const absl::StatusOr<ResolvedRope>& a,
                const absl::StatusOr<ResolvedRope>& b);

// The result of one reader: a rope for each group of layers.
struct Reading {
  const Reader* reader;
  const std::vector<LayerGroup>* groups;
  Ropes ropes;
  std::vector<Comparison> comparisons;  // empty if the reader refuses

  // Returns the first error, or OK if every group resolves.
  absl::Status status() const;
  // Returns the first error as one line that also names the layers.
  std::string refusal() const;
  // Returns the verdict on the group with the worst difference.
  Verdict verdict() const;
  bool differs() const;
  // True if some group differs from the reference in the given member, such as
  // &Comparison::axes.
  bool differs(bool Comparison::*which) const;
  // Returns the value that the reader assumes for an absent key; null if the
  // file has the key, or the reader assumes no value.
  const std::string* Assumed(absl::string_view key) const;
};

class ConfigCase {
 public:
  ConfigCase(const ConfigCase&) = delete;
  ConfigCase& operator=(const ConfigCase&) = delete;
  // `root` must be an object.
  ConfigCase(std::string path, json root,
             const std::vector<const Reader*>& readers, Reach reach);

  const std::string& path() const { return path_; }
  const std::string& model_type() const { return model_type_; }
  std::string type() const { return interpretation::ModelKey(model_type_); }
  const Family& family() const { return family_; }
  const json& root() const { return root_; }
  const json& part() const { return *part_; }
  const Reach& reach() const { return reach_; }

  // Returns transformers' reading, or else the first reading without an error;
  // null if all readings have errors.
  const Reading* reference() const;
  // Returns the reference's rope for the first group of layers. There must be a
  // reference.
  const ResolvedRope& rope() const { return *reference()->ropes[0]; }
  const std::vector<Reading>& readings() const { return readings_; }
  // Returns the rope of the first group's indexer, as `reader` reads it; an
  // error if the class has no indexer.
  absl::StatusOr<ResolvedRope> Indexer(const Reader& reader) const;
  const std::vector<LayerGroup>& groups() const { return groups_; }
  // Returns the index of the group that has the layer; nullopt if no group has
  // it.
  std::optional<std::size_t> GroupOf(std::int32_t layer) const;

  // A function that changes the language model's part of a configuration.
  using Change = std::function<void(json*)>;
  // Resolves a changed copy of the configuration for the layer groups of the
  // original configuration.
  Ropes ResolveChanged(const Change& change,
                       const Reader& reader = *FindReader("hf")) const;

  // True if the reference reads the same encodings and scaling from a changed
  // configuration as from the original configuration.
  bool ReadsTheSame(const Change& change) const;

  // Returns a key outside of the dicts from which `reader` takes `base` as the
  // base of the group's layers. Returns "" if `reader` takes `base` from no key
  // outside of the dicts.
  std::string BaseKey(std::size_t group, double base,
                      const Reader& reader) const;

  // Returns the dicts of rotary parameters in the language model's part:
  // rope_scaling and rope_parameters if they are flat, else the dicts in them.
  std::vector<NamedDict> Dicts() const;
  // Returns the dict that transformers reads; null if that dict is absent or
  // nested.
  const json* FlatDict(std::string* key) const;
  std::optional<double> Number(absl::string_view key) const {
    return NumberAt(part(), key);
  }
  // Returns the key's value in the first dict that has the key; null if no dict
  // has it.
  const json& InDicts(absl::string_view key) const;
  // Returns the reference's warning about a key, or "" if there is no warning.
  std::string WarningOf(absl::string_view key) const;
  std::optional<std::int64_t> MaxPositions() const;
  // True if the file gives a base under a key that the class does not read.
  bool HasOtherBase() const;
  std::optional<double> Original(const json& dict) const;
  // Returns rope_type or type, with aliases resolved, or "" if the dict has
  // neither key.
  static std::string TypeOf(const json& dict);
  std::string KeyPath(absl::string_view key) const;

  using Condition = std::function<bool(const Reading&)>;
  // Returns the verdicts of readers that differ from the reference and for
  // which `concerned` returns true. Marks these readers as explained, so that
  // the checks readers.* do not report them again.
  std::vector<Verdict> Explain(const Condition& concerned);
  std::vector<Verdict> ExplainAll();
  bool IsExplained(const Reading& reading) const {
    return explained_.count(reading.reader) > 0;
  }
  void MarkExplained(const Reading& reading) {
    explained_.insert(reading.reader);
  }
  // Marks all readers that refuse the file as explained.
  void MarkRefusals();
  using Taken = std::function<std::string(const Reading&)>;
  // Returns the value that the reference takes for an absent key, and the other
  // values that readers take, with the readers' names. `taken` returns a
  // reader's value, kRefuses if the reader refuses the file, or "" if it takes
  // no value. If `taken` returns kRefuses for a reader, marks this reader as
  // explained.
  NamesByText TakenForAbsent(const Taken& taken);

  // Number of rows of a k_proj.weight in the checkpoint; nullopt if it is not
  // known.
  std::optional<std::int64_t> key_rows;

  std::vector<Finding>& findings() { return findings_; }
  bool HasError() const {
    return std::ranges::count(findings_, Severity::kError, &Finding::severity) >
           0;
  }
  // Adds a finding. In the texts of rows/checks.json, $0 is the file's path,
  // and `values` are $1, $2, ...
  Finding& Add(absl::string_view id, Values values,
               std::vector<std::string> keys,
               std::vector<Verdict> readers = {});

 private:
  // Returns the file with the values that transformers' class adds: the width
  // or slices of heads, and the scaling. llama.cpp's converter loads the file
  // with that class first.
  json WithClassKeys() const;
  json Changed(const Change& change) const;

  std::string path_;
  json root_;
  std::string model_type_, part_path_;
  const json* part_;
  const Family& family_;
  Reach reach_;
  std::vector<LayerGroup> groups_;
  std::vector<Reading> readings_;
  std::set<const Reader*> explained_;
  std::vector<Finding> findings_;
};

// A published model, and the width of its heads.
struct PublishedHead {
  std::string preset;
  std::int64_t head_dim = 0;
};
// Returns a published model with the configuration's type, hidden size, and
// numbers of heads and layers; nullopt if there is none.
std::optional<PublishedHead> FindPublishedHead(const ConfigCase& config);
// Returns the bases of all presets of the configuration's model type.
std::set<double> PublishedBases(const ConfigCase& config);

// The checks config.* and readers.*, in the order in which they run.
void CheckConfig(ConfigCase* config);     // config_checks.cc: spellings
void CheckScaling(ConfigCase* config);    // scaling_checks.cc
void CheckShape(ConfigCase* config);      // shape_checks.cc
void CheckPublished(ConfigCase* config);  // published_check.cc
void CheckReaders(ConfigCase* config);    // reader_checks.cc: readers.*
// Adds the finding config.key-unread for readers that agree with the reference
// but warn that they do not read a key. Leaves out keys that another finding
// names.
void CheckUnreadKeys(ConfigCase* config);
// Adds the finding config.warned for warnings of the reference about keys that
// no finding names.
void CheckWarnings(ConfigCase* config);

}  // namespace posenc::core::doctor
