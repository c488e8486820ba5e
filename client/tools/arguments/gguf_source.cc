#include "client/tools/arguments/gguf_source.h"

#include <cstdint>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/tools/diagnosis/doctor_files.h"
#include "client/tools/files/status.h"
#include "core/base/text.h"
#include "core/interpretation/formats/gguf_rope.h"
#include "server/convert/rope.h"

namespace posenc::cli {
namespace {

constexpr char kSliding[] = "sliding_attention";

// Refuses flags that say how to read a configuration, because they have no
// effect on a GGUF.
absl::Status CheckFlags(const SourceFlags& flags,
                        const v1::RopeSource& details) {
  for (const auto& [flag, given] :
       {std::pair("profile", details.profile() != v1::PROFILE_UNSPECIFIED &&
                                 details.profile() != v1::PROFILE_LLAMA_CPP),
        std::pair("profile-version", !details.profile_version().empty()),
        std::pair("part", details.part() != v1::MODEL_PART_UNSPECIFIED &&
                              details.part() != v1::MODEL_PART_TEXT)}) {
    if (given) {
      return UsageError(
          absl::StrCat("--", flags.prefix, flag,
                       ": a GGUF is read as llama.cpp does, without it"));
    }
  }
  if (details.has_layer_type() && details.layer_type() != kSliding &&
      details.layer_type() != "full_attention") {
    return UsageError(
        absl::StrCat("--", flags.prefix, "layer-type: '", details.layer_type(),
                     "' is not one of a GGUF's: full_attention, ", kSliding));
  }
  if (details.has_sequence_length() && details.sequence_length() < 1) {
    return UsageError(absl::StrCat("--", flags.prefix, "length: is ",
                                   details.sequence_length(), "; must be > 0"));
  }
  return absl::OkStatus();
}

using core::interpretation::GgufRope;

// Returns an error if layers with a sliding window have another encoding than
// `rope`, the encoding of layers with full attention.
absl::Status CheckLayersAlike(const GgufRope& gguf, std::int64_t length,
                              const core::ResolvedRope& rope,
                              const SourceFlags& flags) {
  ASSIGN_OR_RETURN(const core::ResolvedRope sliding,
                   InFile(flags.config, core::interpretation::ResolveGguf(
                                            gguf, length, /*sliding=*/true)));
  if (sliding.inv_freq == rope.inv_freq &&
      sliding.attention_factor == rope.attention_factor &&
      sliding.head_dim == rope.head_dim) {
    return absl::OkStatus();
  }
  return UsageError(absl::StrCat("--", flags.prefix,
                                 "layer-type: missing; layers with a sliding "
                                 "window rotate differently in ",
                                 flags.config, "; name full_attention or ",
                                 kSliding));
}

// True if llama.cpp rotates the chosen layer.
absl::StatusOr<bool> Rotates(const GgufRope& gguf, const SourceFlags& flags,
                             const v1::RopeSource& details) {
  if (!gguf.rotates) return false;
  if (gguf.RotatesInWindowsAlone() && details.has_layer_type()) {
    return details.layer_type() == kSliding;
  }
  if (!details.has_layer_index()) return true;
  const std::int64_t index = details.layer_index();
  const std::optional<bool> rotates = gguf.RotatesLayer(index);
  if (!rotates) {
    return UsageError(absl::StrCat(
        "--", flags.prefix, "layer-index: the layers of ", gguf.architecture,
        " are not told apart by their index; leave it out, or give --",
        flags.prefix, "layer-type"));
  }
  if (index < 0 || index >= gguf.block_count.value_or(index + 1)) {
    return UsageError(absl::StrCat(
        "--", flags.prefix, "layer-index: is ", index, "; layers count from 0",
        gguf.block_count
            ? absl::StrCat(", and the model has ", *gguf.block_count)
            : ""));
  }
  return *rotates;
}

absl::StatusOr<core::ResolvedRope> ResolvedGguf(const SourceFlags& flags) {
  const v1::RopeSource details = flags.Details();
  RETURN_IF_ERROR(CheckFlags(flags, details));
  ASSIGN_OR_RETURN(const GgufRope gguf,
                   InFile(flags.config, ReadGgufKeys(flags.config)));
  if (gguf.pairing == core::interpretation::GgufPairing::kNone) {
    return FileError(
        flags.config,
        absl::StrCat("architecture ", gguf.architecture, " does not rotate"));
  }
  ASSIGN_OR_RETURN(const bool rotates, Rotates(gguf, flags, details));
  if (!rotates) {
    core::ResolvedRope none;
    none.spec.nope = true;
    none.head_dim = gguf.HeadDim();
    return none;
  }
  const std::int64_t length = details.has_sequence_length()
                                  ? details.sequence_length()
                                  : gguf.context_length.value_or(1);
  ASSIGN_OR_RETURN(core::ResolvedRope rope,
                   InFile(flags.config,
                          core::interpretation::ResolveGguf(
                              gguf, length, details.layer_type() == kSliding)));
  if (!details.has_layer_type()) {
    RETURN_IF_ERROR(CheckLayersAlike(gguf, length, rope, flags));
  }
  const absl::Status axes = core::interpretation::SetGgufAxes(gguf, &rope);
  if (!axes.ok()) return FileError(flags.config, axes);
  return rope;
}

}  // namespace

absl::StatusOr<v1::RopeSource> GgufSource(const SourceFlags& flags) {
  ASSIGN_OR_RETURN(const core::ResolvedRope rope, ResolvedGguf(flags));
  // Prints the assumptions, because a RopeSpec has no field for them.
  for (const core::Assumption& one : rope.assumptions) {
    std::fprintf(stderr, "posenc: %s: assumed %s = %s (%s)\n",
                 core::OneLine(flags.config).c_str(),
                 core::OneLine(one.field).c_str(), one.value.c_str(),
                 core::OneLine(one.reason).c_str());
  }
  v1::ResolveRopeResponse resolved;
  server::WriteRope(rope, /*content_hash=*/"", &resolved);
  v1::RopeSource source;
  source.mutable_spec()->Swap(resolved.mutable_spec());
  source.set_head_dim(resolved.head_dim());
  return source;
}

}  // namespace posenc::cli
