#include "server/methods/rope_source.h"

#include <map>
#include <memory>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/interpretation/content_hash.h"
#include "core/interpretation/source.h"
#include "server/convert/rope.h"

namespace posenc::server {

absl::Status CheckGiven(absl::string_view field, const v1::RopeSource& source) {
  if (source.source_case() != v1::RopeSource::SOURCE_NOT_SET) {
    return absl::OkStatus();
  }
  return core::FieldRequired(
      field, "not given; it takes a spec, a preset or a config_json");
}

absl::Status CheckResolves(absl::string_view field,
                           const v1::RopeSource& source) {
  RETURN_IF_ERROR(CheckGiven(field, source));
  const core::interpretation::RopeSource read = ReadRopeSource(source);
  const auto* spec = std::get_if<core::RopeSpec>(&read.source);
  if (spec != nullptr && spec->rotary_dim == 0 && !spec->nope) {
    return absl::OkStatus();
  }
  return core::Prefixed(field, core::interpretation::ResolveSource(
                                   read, 0, core::MissingLength::kError)
                                   .status());
}

absl::StatusOr<ComparedRopes> ResolveCompared(
    const v1::RopeSource& rope, const v1::RopeSource* compare_with,
    std::int32_t head_dim, const absl::Status& more) {
  core::Faults faults;
  if (head_dim < 0) {
    faults.Note(core::FieldInvalid("head_dim", head_dim,
                                   "; must be positive, or unset"));
  }
  faults.Note(CheckGiven("rope", rope));
  faults.Note(more);
  if (!faults.none()) return faults.status();
  const auto resolve = [&](absl::string_view field,
                           const v1::RopeSource& source) {
    core::interpretation::RopeSource read = ReadRopeSource(source);
    if (read.head_dim == 0) read.head_dim = head_dim;
    auto resolved = core::interpretation::ResolveSource(
        read, head_dim, core::MissingLength::kAssumeOriginal);
    faults.Note(core::Prefixed(field, resolved.status()));
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

std::string CacheKey(const v1::RopeSource& source, std::int64_t head_dim) {
  return absl::StrCat(head_dim, ":", source.SerializeAsString());
}

core::RopeLookup CachedLookup(const v1::RopeSource& source,
                              const MethodContext& context) {
  return [&source, cache = context.cache](std::int64_t head_dim)
             -> absl::StatusOr<std::shared_ptr<const core::PreparedRope>> {
    const std::string key = CacheKey(source, head_dim);
    auto rope = cache->Find(key);
    if (rope != nullptr) return rope;
    ASSIGN_OR_RETURN(
        core::ResolvedRope resolved,
        core::interpretation::ResolveSource(ReadRopeSource(source), head_dim,
                                            core::MissingLength::kError));
    rope = std::make_shared<const core::PreparedRope>(std::move(resolved));
    cache->Insert(key, rope);
    return rope;
  };
}

absl::StatusOr<core::LayerLookup> CachedLayers(absl::string_view field,
                                               const v1::RopeSource& source,
                                               int layers,
                                               const MethodContext& context) {
  // Limit for the size of the configuration times the number of layers. The
  // configuration is read again for each layer, at 5 to 15 MB/s, and each new
  // key in the cache contains the configuration.
  constexpr std::size_t kMostRead = 1 << 20;
  if (source.layer_case() != v1::RopeSource::LAYER_NOT_SET) {
    return core::FieldInvalid(
        absl::StrCat(field,
                     source.has_layer_type() ? ".layer_type" : ".layer_index"),
        "beside cache.model_layers, which chooses the layers; unset it");
  }
  if (source.has_spec()) {
    return core::FieldInvalid(
        absl::StrCat(field, ".spec"),
        "beside cache.model_layers, and a spec has no layers; give a preset or "
        "a config_json");
  }
  const std::size_t read_bytes = layers * source.config_json().size();
  if (read_bytes > kMostRead) {
    return core::FieldInvalid(absl::StrCat(field, ".config_json"), "has ",
                              source.config_json().size(), " bytes, for ",
                              layers, " layers; the product must be at most ",
                              kMostRead);
  }
  // Maps a content hash to the encoding.
  using Prepared = std::shared_ptr<const core::PreparedRope>;
  auto known = std::make_shared<std::map<std::string, Prepared>>();
  return [&source, known, cache = context.cache, stop = context.stop](
             std::int64_t layer,
             std::int64_t head_dim) -> absl::StatusOr<Prepared> {
    RETURN_IF_ERROR(stop ? stop() : absl::OkStatus());
    const std::string key =
        absl::StrCat(layer, "@", CacheKey(source, head_dim));
    if (Prepared kept = cache->Find(key); kept != nullptr) {
      const std::string hash = core::interpretation::ContentHash(kept->rope);
      return known->try_emplace(hash, std::move(kept)).first->second;
    }
    core::interpretation::RopeSource read = ReadRopeSource(source);
    read.layer_index = static_cast<std::int32_t>(layer);
    ASSIGN_OR_RETURN(core::ResolvedRope resolved,
                     core::interpretation::ResolveSource(
                         read, head_dim, core::MissingLength::kError));
    Prepared& same = (*known)[core::interpretation::ContentHash(resolved)];
    if (same == nullptr) {
      same = std::make_shared<const core::PreparedRope>(std::move(resolved));
      // The cache counts the bytes of an object once for each key. So only the
      // first layer of several layers with the same encoding is inserted.
      // Otherwise one call could fill the cache.
      cache->Insert(key, same);
    }
    return same;
  };
}

bool ResolvesLong(const v1::RopeSource& source, std::int64_t head_dim) {
  // kWide is twice the width of the widest published model. Nearly all
  // configuration files are shorter than kLong.
  constexpr std::int64_t kWide = 2048;
  constexpr std::size_t kLong = 16 << 10;
  return head_dim > kWide || source.head_dim() > kWide ||
         source.spec().rotary_dim() > kWide ||
         source.config_json().size() > kLong;
}

}  // namespace posenc::server
