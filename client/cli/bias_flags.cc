#include "client/cli/bias_flags.h"

#include <cstdint>
#include <vector>

#include "client/cli/options.h"
#include "client/cli/status.h"

namespace posenc::cli {
namespace {

constexpr FieldFlag kBiases[] = {
    {"--alibi", "alibi.heads", "HEADS", "ALiBi for so many heads"},
    {"--max-bias", "alibi.max_bias", "X", "Of its rule for slopes (default 8)",
     "--alibi"},
    {"--slopes", "alibi.slopes", "LIST", "Instead of that rule: one per head",
     "--alibi"},

    {"--t5", "t5", nullptr, "T5's buckets; numbers without --weights"},
    {"--num-buckets", "t5.num_buckets", "N", "Default 32", "--t5"},
    {"--max-distance", "t5.max_distance", "N", "Default 128", "--t5"},
    {"--bidirectional", "t5.bidirectional", nullptr,
     "Half of the buckets are for later keys (encoders)", "--t5"},
    {"--weights", "t5.weights", "FILE",
     "[num_buckets, heads]: an .npy, or FILE.safetensors:NAME", "--t5"},

    {"--kerple", "kerple.kernel", "KERNEL", "KERPLE: logarithmic or power"},
    {"--r1", "kerple.r1", "LIST", "One per head", "--kerple", true},
    {"--r2", "kerple.r2", "LIST", "One per head", "--kerple", true},

    {"--fire", "fire", "FILE",
     "FIRE: a .safetensors file with w1, b1, w2 and b2"},
    {"--c", "fire.c", "X", "Of FIRE", "--fire"},
    {"--threshold", "fire.threshold", "X", "Of FIRE", "--fire"},
    {"--epsilon", "fire.epsilon", "X", "Of FIRE: 1e-6 in its code", "--fire"},

    {"--sandwich", "sandwich.heads", "HEADS", "Sandwich for so many heads"},
    {"--dim", "sandwich.dim", "N", "Of Sandwich: 128 in the paper",
     "--sandwich", true},

    {"--untied-positions", "untied_positions", "FILE",
     "TUPE: a .safetensors file with position_queries and position_keys"},
    {"--scale", "untied_positions.scale", "X", "Of TUPE (default 1)",
     "--untied-positions"},
};

constexpr FieldFlag kIndices[] = {
    {"--clip", nullptr, "LEFT,RIGHT", "Shaw's clipped distances: 16,16"},
    {"--deberta", "relative_index.deberta.max_position", "MAX_POSITION",
     "DeBERTa's buckets"},
    {"--bucket-size", "relative_index.deberta.bucket_size", "N",
     "0: none of the logarithmic ones", "--deberta"},
    {"--grid", "relative_index.grid.extents", "EXTENTS",
     "Cells of an image's window: 7x7"},
};

absl::Status SetClip(const std::string& text, v1::ClippedDistance* clip) {
  const absl::StatusOr<std::vector<std::int64_t>> ends =
      ParseIntegers("--clip", text);
  if (!ends.ok()) return ends.status();
  if (ends->size() != 2 ||
      (*ends)[0] != static_cast<std::int32_t>((*ends)[0]) ||
      (*ends)[1] != static_cast<std::int32_t>((*ends)[1])) {
    return UsageError("--clip: left and right are needed; write 16,16");
  }
  clip->set_left(static_cast<std::int32_t>((*ends)[0]));
  clip->set_right(static_cast<std::int32_t>((*ends)[1]));
  return absl::OkStatus();
}

}  // namespace

void AddBiasFlags(CLI::App* app, FieldFlags* flags) {
  flags->Add(app, "Bias", kBiases);
  flags->Add(app, "Indices", kIndices);
}

absl::StatusOr<v1::Bias> BuildBias(const FieldFlags& flags) {
  v1::Bias bias;
  absl::Status status = flags.Read(&bias);
  if (status.ok() && flags.Given("--clip")) {
    status = SetClip(flags.Text("--clip"),
                     bias.mutable_relative_index()->mutable_clip());
  }
  if (!status.ok()) return status;
  return bias;
}

}  // namespace posenc::cli
