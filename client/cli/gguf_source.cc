#include "client/cli/gguf_source.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/doctor_files.h"
#include "client/cli/status.h"
#include "core/model/gguf_rope.h"

namespace posenc::cli {
namespace {

constexpr char kSliding[] = "sliding_attention";

// What says how a configuration is read means nothing for a GGUF.
absl::Status CheckFlags(const SourceFlags& flags) {
  for (const auto& [flag, given] :
       {std::pair("profile", flags.profile != v1::PROFILE_UNSPECIFIED &&
                                 flags.profile != v1::PROFILE_LLAMA_CPP),
        std::pair("profile-version", !flags.profile_version.empty()),
        std::pair("part", flags.part != v1::MODEL_PART_UNSPECIFIED &&
                              flags.part != v1::MODEL_PART_TEXT),
        std::pair("layer-index", flags.layer_index.has_value())}) {
    if (given) {
      return UsageError(absl::StrCat("--", flags.prefix, flag,
                                     ": a GGUF is read as llama.cpp reads it, "
                                     "and takes none"));
    }
  }
  if (!flags.layer_type.empty() && flags.layer_type != kSliding &&
      flags.layer_type != "full_attention") {
    return UsageError(
        absl::StrCat("--", flags.prefix, "layer-type: '", flags.layer_type,
                     "' is none of a GGUF's: full_attention, ", kSliding));
  }
  if (flags.length && *flags.length < 1) {
    return UsageError(absl::StrCat("--", flags.prefix, "length: is ",
                                   *flags.length, "; must be > 0"));
  }
  return absl::OkStatus();
}

absl::StatusOr<core::ResolvedRope> ResolvedGguf(const SourceFlags& flags) {
  const absl::Status good = CheckFlags(flags);
  if (!good.ok()) return good;
  const auto fail = [&](const absl::Status& status) {
    return FileError(flags.config, status);
  };
  const absl::StatusOr<core::GgufRope> gguf = ReadGgufKeys(flags.config);
  if (!gguf.ok()) return fail(gguf.status());
  if (gguf->pairing == core::GgufPairing::kNone) {
    return fail(absl::InvalidArgumentError(
        absl::StrCat("architecture ", gguf->architecture, " does not rotate")));
  }
  absl::StatusOr<core::ResolvedRope> rope = core::ResolveGguf(
      *gguf, flags.length.value_or(gguf->context_length.value_or(1)),
      flags.layer_type == kSliding);
  if (!rope.ok()) return fail(rope.status());
  const absl::Status axes = core::SetGgufAxes(*gguf, &*rope);
  if (!axes.ok()) return fail(axes);
  return rope;
}

}  // namespace

absl::StatusOr<v1::RopeSource> GgufSource(const SourceFlags& flags) {
  const absl::StatusOr<core::ResolvedRope> rope = ResolvedGguf(flags);
  if (!rope.ok()) return rope.status();
  v1::RopeSource source;
  source.set_head_dim(static_cast<std::int32_t>(rope->head_dim));
  v1::RopeSpec& spec = *source.mutable_spec();
  spec.set_rotary_dim(rope->spec.rotary_dim);
  spec.set_pairing(static_cast<v1::Pairing>(rope->spec.pairing));
  if (rope->attention_factor != 1) spec.set_amplitude(rope->attention_factor);
  for (const double w : rope->inv_freq) {
    spec.mutable_explicit_frequencies()->add_values(w);
  }
  if (rope->spec.axes) {
    v1::RotaryAxes* const axes = spec.mutable_axes();
    axes->set_assignment(
        static_cast<v1::RotaryAxes::Assignment>(rope->spec.axes->assignment));
    for (const std::int32_t section : rope->spec.axes->sections) {
      axes->add_sections(section);
    }
  }
  return source;
}

}  // namespace posenc::cli
