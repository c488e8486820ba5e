#include "server/methods/rope_source.h"

#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "core/interpretation/source.h"
#include "server/convert/rope.h"

namespace posenc::server {

absl::Status CheckGiven(absl::string_view field, bool given,
                        const v1::RopeSource& source) {
  if (!given) {
    return core::FieldRequired(
        field, "not given; it takes a spec, a preset or a config_json");
  }
  if (source.source_case() == v1::RopeSource::SOURCE_NOT_SET) {
    return core::FieldRequired(
        field, "no source; give a spec, a preset or a config_json");
  }
  return absl::OkStatus();
}

absl::Status CheckResolves(absl::string_view field, bool given,
                           const v1::RopeSource& source) {
  const absl::Status there = CheckGiven(field, given, source);
  if (!there.ok()) return there;
  const core::interpretation::RopeSource read = ReadRopeSource(source);
  const auto* spec = std::get_if<core::RopeSpec>(&read.source);
  if (spec != nullptr && spec->rotary_dim == 0 && !spec->nope) {
    return absl::OkStatus();
  }
  return core::Prefixed(field, core::interpretation::ResolveSource(
                                   read, 0, core::MissingLength::kError)
                                   .status());
}

absl::StatusOr<core::ResolvedRope> Resolve(absl::string_view field, bool given,
                                           const v1::RopeSource& source,
                                           std::int64_t head_dim,
                                           core::MissingLength missing_length) {
  const absl::Status there = CheckGiven(field, given, source);
  if (!there.ok()) return there;
  core::interpretation::RopeSource read = ReadRopeSource(source);
  if (read.head_dim == 0) read.head_dim = head_dim;
  absl::StatusOr<core::ResolvedRope> rope =
      core::interpretation::ResolveSource(read, head_dim, missing_length);
  if (!rope.ok()) return core::Prefixed(field, rope.status());
  return rope;
}

absl::StatusOr<ComparedRopes> ResolveCompared(
    const v1::RopeSource& rope, const v1::RopeSource* compare_with,
    std::int64_t head_dim) {
  core::Faults faults;
  const auto resolve = [&](absl::string_view field,
                           const v1::RopeSource& source) {
    absl::StatusOr<core::ResolvedRope> resolved = Resolve(
        field, true, source, head_dim, core::MissingLength::kAssumeOriginal);
    faults.Note(resolved.status());
    return resolved;
  };
  absl::StatusOr<core::ResolvedRope> first = resolve("rope", rope);
  ComparedRopes ropes;
  if (compare_with != nullptr) {
    absl::StatusOr<core::ResolvedRope> other =
        resolve("compare_with", *compare_with);
    if (other.ok()) ropes.other = *std::move(other);
  }
  if (!faults.none()) return faults.status();
  ropes.rope = *std::move(first);
  return ropes;
}

core::RopeLookup CachedLookup(absl::string_view field,
                              const v1::RopeSource& source,
                              const MethodContext& context) {
  const std::string* bytes = nullptr;
  if (context.ropes != nullptr) {
    const auto came = context.ropes->find(field);
    if (came != context.ropes->end()) bytes = &came->second;
  }
  return [&source, bytes, cache = context.cache](std::int64_t head_dim)
             -> absl::StatusOr<std::shared_ptr<const core::PreparedRope>> {
    std::string key = absl::StrCat(head_dim, ":");
    if (bytes != nullptr) {
      key += *bytes;
    } else {
      key += source.SerializeAsString();
    }
    auto rope = cache->Find(key);
    if (rope != nullptr) return rope;
    absl::StatusOr<core::ResolvedRope> resolved =
        core::interpretation::ResolveSource(ReadRopeSource(source), head_dim,
                                            core::MissingLength::kError);
    if (!resolved.ok()) return resolved.status();
    rope = std::make_shared<const core::PreparedRope>(*std::move(resolved));
    cache->Insert(key, rope);
    return rope;
  };
}

bool ResolvesLong(const v1::RopeSource& source, std::int64_t head_dim) {
  // Twice the widest published model, and longer than nearly all files.
  constexpr std::int64_t kWide = 2048;
  constexpr std::size_t kLong = 16 << 10;
  return head_dim > kWide || source.head_dim() > kWide ||
         source.spec().rotary_dim() > kWide ||
         source.config_json().size() > kLong;
}

absl::Status CheckHeadDim(std::int32_t head_dim) {
  if (head_dim >= 0) return absl::OkStatus();
  return core::FieldInvalid(
      "head_dim", absl::StrCat(head_dim, "; must be positive, or unset"));
}

absl::Status CheckLayout(v1::Layout layout) {
  if (layout != v1::LAYOUT_UNSPECIFIED) return absl::OkStatus();
  return core::FieldRequired(
      "layout",
      "not given; the wrong one of BSHD and BHSD would not be noticed");
}

}  // namespace posenc::server
