// posenc-parity-towers RECORD [KEPT]: prints one table of posenc's answers for
// the towers that towers.py recorded, and why they differ. With the kept
// record, names the towers that are new, gone, or changed.
//
// A tower agrees if every spelling of its configurations has the library's
// frequencies: equal bits to those of its class with correctly rounded
// functions, or, with one axis, within 5 units in the last place of float32, as
// for language models. "as rounded" counts the library's own cosines and sines,
// on the recording machine, that are correctly rounded like posenc's; all
// others are one unit off.

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/interpretation/source.h"
#include "nlohmann/json.hpp"
#include "tests/fixtures/gzip_json.h"
#include "tests/fixtures/hex.h"

namespace posenc::core {
namespace {

using nlohmann::json;

struct Row {
  int spellings = 0;
  int agree = 0;
  std::string outcome = "agrees";
  std::string why;
  std::int64_t values = 0;   // recorded cosines and sines
  std::int64_t rounded = 0;  // correctly rounded ones among them
};

std::vector<float> FromHex(const json& text) {
  return test::FloatsFromHex(text.get_ref<const std::string&>());
}

// Returns why the answer differs from the library's, or "".
std::string Difference(const json& tower, const ResolvedRope& rope) {
  const std::vector<float> expected = FromHex(tower["inv_freq"]);
  if (rope.inv_freq.size() != expected.size()) {
    return absl::StrCat(rope.inv_freq.size(), " frequencies for ",
                        expected.size());
  }
  const std::int64_t allowed = rope.axes() == 1 ? 5 : 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto ours =
        std::bit_cast<std::int32_t>(static_cast<float>(rope.inv_freq[i]));
    if (std::abs(std::int64_t{ours} -
                 std::bit_cast<std::int32_t>(expected[i])) > allowed) {
      return absl::StrFormat("frequency %d is %.9g for %.9g", i,
                             rope.inv_freq[i], expected[i]);
    }
  }
  if (rope.axes() > 1 &&
      rope.axis_of_pair !=
          tower["axis_of_pair"].get<std::vector<std::int32_t>>()) {
    return "pairs follow other axes";
  }
  return rope.attention_factor == 1 ? "" : "another amplitude";
}

void Examine(const json& tower, Row* row) {
  for (const json& entry : tower["configs"]) {
    interpretation::RopeSource source;
    source.source = interpretation::ConfigJson{entry["config"].dump()};
    if (entry.contains("part"))
      source.part = interpretation::ModelPart::kVision;
    const auto rope =
        interpretation::ResolveSource(source, 0, MissingLength::kError);
    ++row->spellings;
    const std::string why = rope.ok() ? Difference(tower, *rope)
                                      : std::string(rope.status().message());
    if (why.empty()) {
      ++row->agree;
    } else {
      row->outcome = rope.ok() ? "differs" : "refused";
      row->why = absl::StrCat(entry["spelling"].get<std::string>(), ": ", why);
    }
  }
}

void CountRounded(const json& recorded, Row* row) {
  if (!recorded.contains("library_ulps")) return;
  for (const json& table : recorded["library_ulps"]) {
    for (const json& line : table) {
      for (const json& units : line) {
        ++row->values;
        if (units == 0) ++row->rounded;
      }
    }
  }
}

void Print(const std::string& name, const Row& row) {
  std::cout << absl::StrFormat("%-32s %-8s %3d of %3d %6d of %6d  %s\n", name,
                               row.outcome, row.agree, row.spellings,
                               row.rounded, row.values, row.why);
}

int PrintTable(const json& record) {
  std::map<std::string, Row> rows;
  for (const json& tower : record["towers"]) {
    Row& row = rows[tower["tower"].get<std::string>()];
    Examine(tower, &row);
    CountRounded(tower, &row);
  }
  std::map<std::string, int> outcomes;
  std::cout << absl::StrFormat(
      "Towers of transformers %s\n%-32s %-8s %10s %16s\n",
      record["transformers"].get<std::string>(), "", "outcome", "spellings",
      "as rounded");
  for (const auto& [name, why] : record["left_out"].items()) {
    Row& row = rows[name];
    row.outcome = "refused";
    row.why = why.get<std::string>();
  }
  for (const auto& [name, row] : rows) {
    Print(name, row);
    ++outcomes[row.outcome];
  }
  std::cout << absl::StrFormat("Diffusion transformers of diffusers %s\n",
                               record["diffusers"].get<std::string>());
  for (const json& model : record["diffusion"]) {
    interpretation::RopeSource source;
    source.source = interpretation::ConfigJson{model["config"].dump()};
    const auto rope =
        interpretation::ResolveSource(source, 0, MissingLength::kError);
    Row row;
    row.spellings = 1;
    row.agree = rope.ok() ? 1 : 0;
    if (!rope.ok()) {
      row.outcome = "refused";
      row.why = std::string(rope.status().message());
    }
    CountRounded(model, &row);
    Print(model["class"].get<std::string>(), row);
  }
  std::cout << absl::StrFormat("towers: %d agree, %d differ, %d refused\n",
                               outcomes["agrees"], outcomes["differs"],
                               outcomes["refused"]);
  return outcomes["differs"] == 0 ? 0 : 1;
}

// Returns the records of towers and their configurations, by name.
std::map<std::string, json> Recorded(const json& record) {
  std::map<std::string, json> towers;
  for (const json& tower : record["towers"]) {
    towers[absl::StrCat(tower["tower"].get<std::string>(), ", ",
                        tower["configuration"].get<std::string>())] = tower;
  }
  for (const json& model : record["diffusion"]) {
    towers[model["class"].get<std::string>()] = model;
  }
  return towers;
}

void PrintChanges(const json& kept, const json& record) {
  const std::map<std::string, json> before = Recorded(kept);
  const std::map<std::string, json> after = Recorded(record);
  for (const auto& [name, tower] : after) {
    const auto was = before.find(name);
    if (was == before.end()) {
      std::cout << "new: " << name << "\n";
      continue;
    }
    for (const auto& [key, value] : tower.items()) {
      // The numbers of ulps and of equal elements depend on the machine.
      if (key.find("ulps") != std::string::npos || key == "equal_elements" ||
          was->second.value(key, json()) == value) {
        continue;
      }
      std::cout << "changed: " << name << ": " << key << "\n";
    }
  }
  for (const auto& [name, tower] : before) {
    if (!after.contains(name)) std::cout << "gone: " << name << "\n";
  }
}

}  // namespace
}  // namespace posenc::core

int main(int argc, char** argv) try {
  if (argc != 2 && argc != 3) {
    std::cerr << "posenc-parity-towers RECORD [KEPT]\n";
    return 2;
  }
  const nlohmann::json record = posenc::test::LoadGzipJson(argv[1]);
  const nlohmann::json kept = posenc::test::LoadGzipJson(argv[argc - 1]);
  if (record.is_discarded() || kept.is_discarded()) {
    std::cerr << argv[1] << ", " << argv[argc - 1] << ": cannot be read\n";
    return 2;
  }
  posenc::core::PrintChanges(kept, record);
  return posenc::core::PrintTable(record);
} catch (const std::exception& error) {  // a record in another format
  std::fputs(error.what(), stderr);
  return 2;
}
