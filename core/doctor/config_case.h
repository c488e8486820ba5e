// One configuration and every reader's interpretation of it, for the checks of
// a config.json.

#pragma once

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

// A dict of rotary parameters: its path in the file, its content, and its place
// in the language part.
struct NamedDict {
  std::string path;
  const json* dict;
  json::json_pointer place;
};

// True if a key of such a dict only tells how positions are scaled.
bool IsScalingKey(absl::string_view key);

// The ropes of groups of layers; nullopt for a group that cannot be read.
using Ropes = std::vector<std::optional<ResolvedRope>>;

// True if the content hashes are the same, group by group.
bool SameRopes(const Ropes& a, const Ropes& b);

// One reader's answers, one for each group of layers.
struct Reading {
  const Reader* reader;
  const std::vector<LayerGroup>* groups;
  std::vector<absl::StatusOr<ResolvedRope>> ropes;
  std::vector<Comparison> comparisons;  // empty if the reader refuses

  // The first error; OK if every group resolves.
  absl::Status status() const;
  // The first error as one line, with the layers that have it.
  std::string refusal() const;
  // The verdict on the worst group.
  Verdict verdict() const;
  bool differs() const;
  // True if some group differs in the given member, such as &Comparison::axes.
  bool differs(bool Comparison::*which) const;
  // Returns the value that the reader assumes for a key that the file lacks;
  // null if the file has the key, or the reader does not need it.
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
  bool known_family() const { return known_family_; }
  const json& root() const { return root_; }
  const json& part() const { return *part_; }
  const Reach& reach() const { return reach_; }

  // transformers' reading, or else the first reading without an error.
  const Reading* reference() const;
  // The reference's rope of the first group; there must be a reference.
  const ResolvedRope& rope() const { return *reference()->ropes[0]; }
  const std::vector<Reading>& readings() const { return readings_; }
  // Returns one reader's indexer of the first group; an error unless the class
  // has an indexer.
  absl::StatusOr<ResolvedRope> Indexer(const Reader& reader) const;
  const std::vector<LayerGroup>& groups() const { return groups_; }

  // Resolves another configuration, group by group.
  Ropes ResolveOther(const json& root,
                     const Reader& reader = *FindReader("hf")) const;

  // True if the reference reads the same encodings, with their scaling, from
  // another configuration.
  bool ReadsTheSame(const json& root) const;
  // True if the reference ignores the scaling in the dict.
  bool Drops(const NamedDict& named) const;

  // Dicts of the file: rope_scaling, rope_parameters, or their entries.
  std::vector<NamedDict> Dicts() const;
  // The dict that transformers reads; null if it is absent or nested.
  const json* FlatDict(std::string* key) const;
  std::optional<double> Number(absl::string_view key) const {
    return NumberAt(part(), key);
  }
  // Returns the key's value in the first dict that has it; null if no dict has
  // it.
  const json& InDicts(absl::string_view key) const;
  // Returns the reference's warning about a key; "" if there is no warning.
  std::string WarningOf(absl::string_view key) const;
  std::optional<std::int64_t> MaxPositions() const;
  // True if the file gives a base under a key that the class does not read.
  bool HasOtherBase() const;
  std::optional<double> Original(const json& dict) const;
  // rope_type or type, with aliases resolved; "" if the dict has neither.
  static std::string TypeOf(const json& dict);
  std::string KeyPath(absl::string_view key) const;

  // Returns this configuration after `change` of its language part.
  json Changed(const std::function<void(json*)>& change) const;

  using Condition = std::function<bool(const Reading&)>;
  // Returns the verdicts of the differing readers for which `concerned` holds,
  // and marks these readers as explained: the checks readers.* do not report
  // them again.
  std::vector<Verdict> Explain(const Condition& concerned);
  std::vector<Verdict> ExplainAll();
  bool IsExplained(const Reading& reading) const {
    return explained_.count(reading.reader) > 0;
  }
  void MarkExplained(const Reading& reading) {
    explained_.insert(reading.reader);
  }
  // Marks the readers that refuse the file.
  void MarkRefusals();
  using Taken = std::function<std::string(const Reading&)>;
  // Returns the value that the reference assumes for an absent key, and the
  // readers that assume another value. Marks the readers that refuse the file.
  // `taken` returns a reader's value, kRefuses, or "" for neither.
  NamesByText TakenForAbsent(const Taken& taken);

  // Rows of a k_proj.weight in the checkpoint, if the checkpoint has one.
  std::optional<std::int64_t> key_rows;

  std::vector<Finding>& findings() { return findings_; }
  // `values` follow the file's path in the row's texts.
  Finding& Add(absl::string_view id, Values values,
               std::vector<std::string> keys,
               std::vector<Verdict> readers = {});

 private:
  // The file, with the width or slices of heads and the scaling that
  // transformers' class adds: llama.cpp's converter asks that class first. Null
  // if the class adds nothing.
  json WithClassKeys() const;

  std::string path_;
  json root_;
  std::string model_type_, part_path_;
  const json* part_;
  bool known_family_ = false;
  const Family& family_;
  Reach reach_;
  std::vector<LayerGroup> groups_;
  std::vector<Reading> readings_;
  std::set<const Reader*> explained_;
  std::vector<Finding> findings_;
};

// A preset of the same type, width, heads and layers, and the width of its
// heads; nullopt if there is no such preset.
struct PublishedHead {
  std::string preset;
  std::int64_t head_dim = 0;
};
std::optional<PublishedHead> FindPublishedHead(const ConfigCase& config);
// The bases of all presets of the same type.
std::set<double> PublishedBases(const ConfigCase& config);

// The checks of config.*, in the order of the table.
void CheckConfig(ConfigCase* config);     // config_checks.cc: spellings
void CheckScaling(ConfigCase* config);    // scaling_checks.cc
void CheckShape(ConfigCase* config);      // shape_checks.cc
void CheckPublished(ConfigCase* config);  // published_check.cc
void CheckReaders(ConfigCase* config);    // reader_checks.cc: readers.*
// config.key-unread: readers give the reference's numbers, and warn that they
// do not read a key. This check leaves out keys that another finding names.
void CheckUnreadKeys(ConfigCase* config);
// config.warned: warnings of the reference that no finding covers.
void CheckWarnings(ConfigCase* config);

}  // namespace posenc::core::doctor
