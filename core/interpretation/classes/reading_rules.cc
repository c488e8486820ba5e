#include "core/interpretation/classes/reading_rules.h"

#include <algorithm>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/error.h"
#include "core/interpretation/classes/profile.h"

namespace posenc::core::interpretation {
namespace {

constexpr ReadingRow kRows[] = {
#include "readings.inc"
};

constexpr Reader kReaders[] = {
#include "readers.inc"
};

// Returns the numbers of a version, which may begin with a letter ("v0.33.0",
// llama.cpp's "b1234"); nullopt if the text is no version.
std::optional<Version> Numbers(absl::string_view text) {
  if (absl::StartsWith(text, "v") || absl::StartsWith(text, "b")) {
    text.remove_prefix(1);
  }
  Version numbers;
  for (const absl::string_view part : absl::StrSplit(text, '.')) {
    int number = 0;
    if (part.size() > 8 || !absl::c_all_of(part, absl::ascii_isdigit) ||
        !absl::SimpleAtoi(part, &number)) {
      return std::nullopt;
    }
    numbers.push_back(number);
  }
  return numbers;
}

bool Applies(const ReadingRow& row, Profile reader, const Version& version,
             absl::string_view model_type) {
  return row.reader == reader &&
         (row.families.empty() || IsAmong(model_type, row.families)) &&
         (row.since.empty() || IsSince(version, row.since)) &&
         (row.until.empty() || !IsSince(version, row.until));
}

}  // namespace

absl::Span<const ReadingRow> ReadingRows() { return kRows; }

absl::Span<const Reader> Readers() { return kReaders; }

const Reader* FindReader(absl::string_view id) {
  for (const Reader& reader : Readers()) {
    if (reader.id == id) return &reader;
  }
  return nullptr;
}

Version VersionOf(const Reader& reader) {
  return reader.reads_as.empty() ? Version() : *Numbers(reader.reads_as);
}

absl::StatusOr<Version> ParseVersion(Profile reader, absl::string_view text) {
  const absl::string_view newest = RulesOf(reader).newest;
  const auto numbers = text.size() <= 32 ? Numbers(text) : std::nullopt;
  if (numbers) return *numbers;
  return FieldInvalid(
      "profile_version",
      absl::StrCat("is \"", text.substr(0, 32),
                   "\"; a version is numbers with dots between them",
                   newest.empty() ? "" : ", as ", newest));
}

bool IsSince(const Version& version, absl::string_view other) {
  // If `other` has no numbers, every version is later than `other`.
  return IsSince(version, Numbers(other).value_or(Version{0}));
}

bool IsSince(const Version& version, const Version& other) {
  if (version.empty() || other.empty()) return version.empty();
  // "0.22" is "0.22.0".
  Version a = version, b = other;
  const std::size_t size = std::max(a.size(), b.size());
  a.resize(size);
  b.resize(size);
  return a >= b;
}

std::optional<absl::string_view> NearestVersion(Profile reader,
                                                const Version& version) {
  const ProfileRules& rules = RulesOf(reader);
  if (version.empty()) return std::nullopt;
  if (rules.newest.empty()) {
    const auto* const one =
        std::find_if(std::begin(kReaders), std::end(kReaders),
                     [reader](const Reader& r) { return r.profile == reader; });
    return one->version;
  }
  if (!IsSince(version, rules.oldest)) return rules.oldest;
  if (!IsSince(*Numbers(rules.newest), version)) return rules.newest;
  return std::nullopt;
}

const ReadingRow* FindReadingRow(Profile reader, const Version& version,
                                 absl::string_view model_type,
                                 ReadingRule rule) {
  for (const ReadingRow& row : ReadingRows()) {
    if (row.rule == rule && Applies(row, reader, version, model_type)) {
      return &row;
    }
  }
  return nullptr;
}

bool LacksClass(Profile reader, const Version& version,
                absl::string_view model_type) {
  if (model_type.empty()) return false;
  bool lacks = false;
  for (const ReadingRow& row : ReadingRows()) {
    if (row.rule != ReadingRule::kNoClass &&
        row.rule != ReadingRule::kHasClass) {
      continue;
    }
    if (Applies(row, reader, version, model_type)) {
      return row.rule == ReadingRule::kNoClass;
    }
    lacks |= row.rule == ReadingRule::kHasClass && row.reader == reader;
  }
  return lacks;
}

const ReadingRow& SpellingRow(Profile reader, const Version& version,
                              absl::string_view model_type) {
  for (const ReadingRow& row : ReadingRows()) {
    if (row.rule <= ReadingRule::kParametersUnread &&
        Applies(row, reader, version, model_type)) {
      return row;
    }
  }
  // Projects without a row, such as the reference implementations, follow
  // transformers.
  return SpellingRow(Profile::kHf, {}, "");
}

}  // namespace posenc::core::interpretation
