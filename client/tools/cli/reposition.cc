// `posenc reposition`: moves rotated keys to other positions, or to another
// encoding, without the unrotated keys. Use it for a KV cache that is edited,
// shifted or extended. The tensors of all layers in a file are moved in the
// same way. Each tensor is one call.

#include <memory>
#include <optional>

#include "client/tools/arguments/connection.h"
#include "client/tools/arguments/enum_flags.h"
#include "client/tools/arguments/transform.h"
#include "client/tools/cli/commands.h"
#include "client/tools/files/status.h"
#include "client/tools/files/tensor_file.h"

namespace posenc::cli {
namespace {

constexpr FieldFlag kCache[] = {
    {"--cache", "dimensions", "DIMENSIONS",
     "The keys are a paged cache: its dimensions in the order of memory "
     "(BTHD), or an engine's name (vllm_split)"},
    {"--block-table", "block_table", "FILE",
     "The blocks of each sequence: an .npy, or FILE.safetensors:NAME",
     "--cache"},
    {"--lengths", "lengths", "LIST",
     "Tokens of each sequence (default: all of its blocks)", "--cache"},
    {"--slots", "slots", "FILE",
     "The slot of each token, instead of --block-table", "--cache"},
    {"--layers", "layers", "LIST", "Layers that move (default: all)",
     "--cache"},
    {"--model-layers", "model_layers", "LIST",
     "The layer of the model that each layer of the cache holds, if layers "
     "have different encodings",
     "--cache"},
};

// `old_rope` and `old_positions` are the encoding and the positions of the
// keys. If no new encoding is given, the old encoding stays. One of three forms
// must give the new positions: a shift, a shift for each token, or the
// positions themselves. `args` has the arguments that are neither tensors nor
// messages.
struct RepositionFlags {
  RepositionArgs args;
  SourceFlags old_rope;
  SourceFlags new_rope;
  FieldFlags old_positions{v1::Positions::descriptor()};
  FieldFlags new_positions{v1::Positions::descriptor()};
  std::optional<std::int64_t> shift;
  std::string shifts;
  FieldFlags cache{v1::CacheLayout::descriptor()};
  TransformFlags files;
};

// Old positions are optional: if the encoding stays the same and has no xPos,
// the rotation by a shift does not depend on them. In other cases the server
// requires old positions.
absl::StatusOr<v1::Movement> BuildMovement(const RepositionFlags& flags) {
  const int targets = flags.shift.has_value() + !flags.shifts.empty() +
                      !flags.new_positions.Empty();
  if (targets != 1) {
    return UsageError(
        "new positions: give one of --shift, --shifts and --new-start, ...");
  }
  v1::Movement movement;
  if (!flags.old_positions.Empty()) {
    ASSIGN_OR_RETURN(*movement.mutable_old_positions(),
                     BuildPositions(flags.old_positions));
  }
  if (flags.shift) {
    movement.set_shift(*flags.shift);
  } else if (!flags.shifts.empty()) {
    RETURN_IF_ERROR(
        ReadTensor("--shifts", flags.shifts, movement.mutable_shifts()));
  } else {
    ASSIGN_OR_RETURN(*movement.mutable_new_positions(),
                     BuildPositions(flags.new_positions));
  }
  return movement;
}

absl::Status RunReposition(const RepositionFlags& flags,
                           const GlobalFlags& globals) {
  RepositionArgs args = flags.args;
  if (!flags.cache.Empty()) {
    RETURN_IF_ERROR(flags.cache.Read(&args.cache.emplace()));
  }
  ASSIGN_OR_RETURN(args.movement, BuildMovement(flags));
  ASSIGN_OR_RETURN(args.old_rope, BuildSource(flags.old_rope));
  if (flags.new_rope.Given()) {
    ASSIGN_OR_RETURN(args.new_rope,
                     BuildVariant(args.old_rope, flags.new_rope));
  }
  ASSIGN_OR_RETURN(const Connection connection, Connection::Open(globals));
  return Transform(
      flags.files, globals, "repositioned", {"k", "*.k", "*key*"},
      [&](const SafetensorsEntry& entry,
          const TensorView& tensor) -> absl::StatusOr<TensorResult> {
        if (entry.dtype == "U8" &&
            args.block_format == v1::BLOCK_FORMAT_UNSPECIFIED) {
          return UsageError("U8 holds bytes of blocks; give --block-format");
        }
        args.k = tensor;
        return connection.client().Reposition(args);
      });
}

}  // namespace

Command AddReposition(CLI::App* app, const GlobalFlags* globals) {
  const auto flags = std::make_shared<RepositionFlags>();
  AddSourceFlags(app, "", "Encoding that the keys were rotated with",
                 &flags->old_rope);
  AddSourceFlags(app, "new-", "New encoding (default: the same)",
                 &flags->new_rope);
  AddPositionFlags(app, "", "Old positions of the keys", &flags->old_positions);
  AddFlag(app, "--shift", &flags->shift, "N", "Added to every position",
          {.group = "New positions of the keys"});
  AddFlag(app, "--shifts", &flags->shifts, "FILE",
          "One shift per token: an .npy, or FILE.safetensors:NAME",
          {.group = "New positions of the keys"});
  AddPositionFlags(app, "new-", "New positions of the keys",
                   &flags->new_positions);
  AddEnumFlag(app, "--layout", &flags->args.layout,
              "bshd, bhsd, sbhd or thd; required without --cache");
  flags->cache.Add(app, "Paged caches", kCache);
  AddSaturationFlag(app, &flags->args.saturation);
  AddEnumFlag(app, "--block-format", &flags->args.block_format,
              "q8_0 or q4_0: the tensors are bytes of llama.cpp's blocks (I8 "
              "or U8; the last dimension counts bytes)");
  AddTransformFlags(app, "k, *.k, *key*", &flags->files);
  return [flags, globals] { return RunReposition(*flags, *globals); };
}

}  // namespace posenc::cli
