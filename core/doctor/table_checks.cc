// tables.*: compares saved tables of frequencies with the configuration and
// with each other.

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/angle/quarter_turns.h"
#include "core/base/tensor.h"
#include "core/doctor/input_checks.h"
#include "core/interpretation/compare.h"

namespace posenc::core::doctor {
namespace {

// A tolerance of a few ulps, because engines compute tables in float32 with a
// power and a division.
constexpr double kTolerance = 16 * 0x1p-24;

// Returns the number after "layers.", "h." or "layer.", else -1.
std::int32_t LayerOf(absl::string_view name) {
  const std::vector<std::string> steps = absl::StrSplit(name, '.');
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
    if (steps[i] != "layers" && steps[i] != "h" && steps[i] != "layer") {
      continue;
    }
    std::int32_t layer = -1;
    if (absl::SimpleAtoi(steps[i + 1], &layer) && layer >= 0) return layer;
  }
  return -1;
}

// Returns the largest relative difference of two elements; 1 for lists of
// different lengths.
double Apart(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return 1;
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, RelativeDifference(a[i], b[i]));
  }
  return most;
}

// Returns the values of a float32 table after a cast to a narrower dtype.
std::vector<double> CastTo(Dtype dtype, const std::vector<double>& values) {
  std::vector<double> cast;
  cast.reserve(values.size());
  std::uint16_t bits = 0;
  for (const double value : values) {
    StoreDouble(static_cast<float>(value), {dtype, {1}, &bits}, 0);
    cast.push_back(ElementAsDouble({dtype, {1}, &bits}, 0));
  }
  return cast;
}

// If the table is a cast of the wanted frequencies to a narrower dtype, returns
// that dtype; else nullopt.
std::optional<Dtype> CastOf(const std::vector<double>& table,
                            const std::vector<double>& wanted) {
  if (Apart(table, wanted) <= kTolerance) return std::nullopt;
  for (const Dtype dtype : {Dtype::kBfloat16, Dtype::kFloat16,
                            Dtype::kFloat8E4m3fn, Dtype::kFloat8E5m2}) {
    if (Apart(table, CastTo(dtype, wanted)) <= 1e-7) return dtype;
  }
  return std::nullopt;
}

// Returns common tables of n frequencies. The first table is for pixels in
// diffusion transformers: n numbers, evenly spaced from pi to 128 pi. The other
// tables are for common bases.
std::vector<std::vector<double>> UsualTables(std::size_t n) {
  std::vector<std::vector<double>> tables(1);
  const auto pairs = static_cast<double>(n);
  for (double pair = 0; pair < pairs; ++pair) {
    tables[0].push_back(std::numbers::pi * (1 + 127 * pair / (pairs - 1)));
  }
  for (const double base : {1e4, 5e5, 1e6, 1e5, 1.5e5, 1.6e5, 2e6, 5e6, 8e6,
                            1e7, 1e8, 256., 1e3, 2e3, 2e4}) {
    std::vector<double>& table = tables.emplace_back();
    for (double pair = 0; pair < pairs; ++pair) {
      table.push_back(std::pow(base, -pair / pairs));
    }
  }
  return tables;
}

// Returns a text such as "15 of 64 frequencies are 0, and the others are up to
// 95 % off".
std::string LossText(const std::vector<double>& table,
                     const std::vector<double>& wanted) {
  std::size_t zeros = 0;
  double most = 0;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i] == 0 && wanted[i] != 0) {
      ++zeros;
    } else if (wanted[i] != 0) {
      most = std::max(most, std::abs(table[i] / wanted[i] - 1));
    }
  }
  return Say("tables.loss",
             {zeros, table.size(), absl::StrFormat("%.2g", 100 * most)});
}

// The base and factor of a table base^(-i/n) / factor.
struct Fit {
  double base, factor;
};
std::optional<Fit> FitOf(const std::vector<double>& table) {
  const std::size_t n = table.size();
  if (n < 2 || !(table[0] > 0)) return std::nullopt;
  const double pairs = static_cast<double>(n);
  const double base = std::pow(table[n - 1] / table[0], -pairs / (pairs - 1));
  if (!(base > 1) || !std::isfinite(base)) return std::nullopt;
  for (std::size_t i = 0; i < n; ++i) {
    const double fitted =
        table[0] * std::pow(base, -static_cast<double>(i) / pairs);
    // The tolerance allows for tables of 16 bits.
    if (RelativeDifference(table[i], fitted) > 5e-3) return std::nullopt;
  }
  return Fit{base, 1 / table[0]};
}

// Returns a round number if one is near the value, or else six digits of the
// value.
std::string Round(double value) {
  for (const double unit : {1000.0, 100.0, 1.0, 0.5}) {
    const double near = std::round(value / unit) * unit;
    if (near > 0 && RelativeDifference(value, near) < 2e-4) {
      return PlainNumber(near);
    }
  }
  return absl::StrFormat("%.6g", value);
}

struct TableChecks {
  const DoctorInput& input;
  const ConfigCase* const config;  // may be null
  std::vector<Finding>* const findings;
  std::set<std::string> bad = {};           // names of unusable tables
  std::set<std::vector<double>> cast = {};  // tables whose cast is reported
  // Tables that have a finding other than a cast.
  std::set<std::vector<double>> told = {};

  void Run() {
    for (SavedTable table : input.tables) {
      const ResolvedRope* const reference = Reference(table);
      if (IsCast(&table, reference) || !CheckValues(table, reference)) continue;
      if (reference != nullptr) CheckAgainst(table, *reference);
    }
    CheckLayers();
  }

  Finding& Add(absl::string_view id, Values values, const SavedTable& table,
               std::vector<Verdict> readers = {}) {
    values.insert(values.begin(), input.path);
    std::vector<std::string> inputs = {input.path};
    if (config != nullptr) inputs.push_back(config->path());
    Finding& finding = AddFinding(id, values, std::move(inputs), {table.name},
                                  findings, std::move(readers));
    const std::int32_t layer = LayerOf(table.name);
    if (layer >= 0) finding.layers = std::vector<std::int32_t>{layer};
    return finding;
  }

  // Returns the encoding of the table's layer. If the table's name has no
  // layer, returns the encoding with the most similar frequencies. Returns null
  // without a configuration.
  const ResolvedRope* Reference(const SavedTable& table) const {
    if (config == nullptr || config->reference() == nullptr) return nullptr;
    const auto& ropes = config->reference()->ropes;
    if (const auto group = config->GroupOf(LayerOf(table.name))) {
      return &*ropes[*group];
    }
    return &**std::ranges::min_element(ropes, {}, [&table](const auto& rope) {
      return Apart(table.values, rope->inv_freq);
    });
  }

  // Reports a table that was cast to few bits. Returns true if the cast is the
  // table's only fault. Equal tables of several layers share a finding. If the
  // table is a cast of common frequencies, but not of the reference's
  // frequencies, the common frequencies replace the values of the table.
  bool IsCast(SavedTable* table, const ResolvedRope* reference) {
    // A cast of frequencies has only finite values.
    for (const double w : table->values) {
      if (!std::isfinite(w)) return false;
    }
    if (table->values.empty()) return false;
    if (reference != nullptr) {
      const auto dtype = CastOf(table->values, reference->inv_freq);
      if (dtype) {
        TellCast(*table, *dtype, reference->inv_freq, reference);
        return true;
      }
      if (Apart(table->values, reference->inv_freq) <= kTolerance) return false;
    }
    // A table of 16 bits may be the model's own table, so only casts to 8 bits
    // are tried.
    for (const std::vector<double>& one : UsualTables(table->values.size())) {
      const std::optional<Dtype> dtype = CastOf(table->values, one);
      if (!dtype || !IsFloat8(*dtype)) continue;
      TellCast(*table, *dtype, one, nullptr);
      table->values = one;
      return reference == nullptr;
    }
    if (IsFloat8(table->dtype)) TellCast(*table, table->dtype, {}, nullptr);
    return false;
  }

  // `wanted` are the frequencies before the cast; empty if they are unknown.
  void TellCast(const SavedTable& table, Dtype dtype,
                const std::vector<double>& wanted,
                const ResolvedRope* reference) {
    if (!cast.insert(table.values).second) return;
    std::vector<std::string> losses;
    std::vector<Verdict> readers;
    if (reference != nullptr) {
      readers = {VerdictOf(table, *reference)};
      losses.push_back(Say("tables.angles", {readers[0].first_angle}));
    }
    if (wanted.empty()) {
      const bool is_e4m3 = dtype == Dtype::kFloat8E4m3fn;
      losses.push_back(
          Say("tables.bound",
              {std::ranges::count(table.values, 0.0), table.values.size(),
               is_e4m3 ? "6.25" : "12.5", is_e4m3 ? "2^-6" : "2^-14"}));
    } else if (IsFloat8(dtype)) {
      losses.push_back(LossText(table.values, wanted));
    }
    Finding& finding =
        Add("tables.inv-freq-rounded",
            {table.name, DtypeName(dtype), absl::StrJoin(losses, "; ")}, table,
            readers);
    if (IsFloat8(dtype) && reference != nullptr) {
      finding.severity = std::min(finding.severity, SeverityOf(readers[0]));
    }
  }

  // Returns how much of the scores the table keeps. The table must have as many
  // pairs as the reference.
  Verdict VerdictOf(const SavedTable& table,
                    const ResolvedRope& reference) const {
    ResolvedRope other = reference;
    other.inv_freq = table.values;
    Verdict verdict = Compare(reference, other, config->reach()).verdict;
    verdict.name = "the saved table";
    verdict.says = table.name;
    return verdict;
  }

  // Returns false if the values cannot be a table of frequencies.
  bool CheckValues(const SavedTable& table, const ResolvedRope* reference) {
    if (table.values.empty()) {
      Add("tables.inv-freq-layers", {Say("tables.empty", {table.name})}, table);
      bad.insert(table.name);
      return false;
    }
    const auto wanted = [&](std::size_t pair, double otherwise) {
      return reference != nullptr && pair < reference->inv_freq.size()
                 ? reference->inv_freq[pair]
                 : otherwise;
    };
    for (std::size_t i = 0; i < table.values.size(); ++i) {
      const double w = table.values[i];
      // In 8 bits, small frequencies become 0.
      const bool stands =
          w == 0 && (IsFloat8(table.dtype) || wanted(i, 1) == 0);
      // Uninitialised memory has tiny numbers, which no base gives.
      if (!stands && !(w >= 1e-15 && w <= kMaxFrequency)) {
        return Unusable(table, i);
      }
    }
    if (FitOf(table.values) ||
        (table.values.size() > 1 &&
         Apart(table.values, UsualTables(table.values.size())[0]) <= 5e-3)) {
      return true;
    }
    // Before scaling, the first pair rotates by 1 radian for each position.
    const double first = table.values[0];
    if (reference != nullptr) {
      return RelativeDifference(first, wanted(0, 1)) <= 5e-3 || first == 1 ||
             Unusable(table, 0);
    }
    if (told.insert(table.values).second) {
      Add("tables.inv-freq-alone", {table.name, table.values.size()}, table);
    }
    return true;
  }

  // Adds the finding that the table is unusable. Returns false.
  bool Unusable(const SavedTable& table, std::size_t pair) {
    Add("tables.inv-freq-layers",
        {Say("tables.unusable",
             {table.name, absl::StrFormat("%.2g", table.values[pair]), pair})},
        table);
    bad.insert(table.name);
    return false;
  }

  void CheckAgainst(const SavedTable& table, const ResolvedRope& reference) {
    const std::vector<double>& wanted = reference.inv_freq;
    if (reference.spec.nope || wanted.empty() ||
        Apart(table.values, wanted) <= kTolerance ||
        !told.insert(table.values).second) {  // reported before
      return;
    }
    std::string is, says, set;
    // The kept share (kept.h) is defined only if table and reference have the
    // same number of pairs.
    std::vector<Verdict> readers;
    if (table.values.size() == wanted.size()) {
      readers = {VerdictOf(table, reference)};
    }
    if (readers.empty()) {
      is = absl::StrCat(table.values.size(), " pairs");
      says = absl::StrCat(wanted.size());
      set = "the rotated width";
    } else if (const std::optional<Fit> ours = FitOf(table.values)) {
      const double base = reference.spec.rope_theta.value_or(0);
      const bool scaled = RelativeDifference(ours->factor, 1) > 1e-3;
      const bool other_base = RelativeDifference(ours->base, base) > 2e-4;
      const std::string factor = Round(ours->factor);
      is = absl::StrCat("base ", Round(ours->base),
                        scaled ? " and factor " + factor : "");
      const std::string scaling = interpretation::ScalingText(reference.spec);
      says = PlainNumber(base);
      if (scaling != "no scaling" || scaled) {
        absl::StrAppend(&says, ", ", scaling.substr(0, scaling.find(", ramp")));
      }
      std::vector<std::string> keys;
      if (other_base) {
        const auto group = config->GroupOf(LayerOf(table.name));
        const std::string key =
            group ? config->BaseKey(*group, ours->base, *FindReader("hf")) : "";
        keys.push_back(absl::StrCat("\"", key.empty() ? "rope_theta" : key,
                                    "\": ", Round(ours->base)));
      }
      if (scaled) keys.push_back(Say("tables.linear", {factor}));
      set = keys.empty() ? "\"rope_scaling\": null" : absl::StrJoin(keys, ", ");
    } else {
      is = Say("tables.off",
               {absl::StrFormat("%.3g", 100 * Apart(table.values, wanted))});
      says = DescribeRope(reference);
      set = "the base and scaling that give this table";
    }
    Add("tables.inv-freq-differs", {table.name, is, config->path(), says, set},
        table, readers);
  }

  // Checks that layers with the same rope have equal tables.
  void CheckLayers() {
    std::map<std::size_t, std::vector<const SavedTable*>> by_group;
    for (const SavedTable& table : input.tables) {
      const std::int32_t layer = LayerOf(table.name);
      if (layer < 0 || bad.count(table.name) > 0) continue;
      const auto group = config ? config->GroupOf(layer) : std::nullopt;
      by_group[group.value_or(0)].push_back(&table);
    }
    for (const auto& [group, tables] : by_group) {
      std::map<std::vector<double>, int> counts;
      for (const SavedTable* table : tables) ++counts[table->values];
      const auto usual = std::ranges::max_element(
          counts, {}, [](const auto& one) { return one.second; });
      for (const SavedTable* table : tables) {
        const double apart = Apart(table->values, usual->first);
        if (apart <= kTolerance) continue;
        Add("tables.inv-freq-layers",
            {Say("tables.unlike-others",
                 {table->name, absl::StrFormat("%.3g", 100 * apart)})},
            *table);
        break;  // one finding is enough
      }
    }
  }
};

}  // namespace

std::optional<double> FittedBase(const SavedTable& table) {
  const std::optional<Fit> fit = FitOf(table.values);
  if (!fit || RelativeDifference(fit->factor, 1) > 1e-3) return std::nullopt;
  return fit->base;
}

void CheckTables(const DoctorInput& input, const ConfigCase* config,
                 std::vector<Finding>* findings) {
  TableChecks{input, config, findings}.Run();
}

}  // namespace posenc::core::doctor
