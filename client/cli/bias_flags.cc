// As in absolute_flags.cc, CLI11 knows which flags exclude and need each other,
// and the server judges the values.

#include "client/cli/bias_flags.h"

#include "absl/strings/str_cat.h"
#include "client/cli/options.h"
#include "client/cli/status.h"
#include "client/cli/tensor_file.h"

namespace posenc::cli {
namespace {

absl::Status SetAlibi(const BiasFlags& flags, v1::Alibi* alibi) {
  alibi->set_heads(*flags.alibi);
  if (flags.max_bias) alibi->set_max_bias(*flags.max_bias);
  return ParseNumbers("--slopes", flags.slopes, alibi->mutable_slopes());
}

absl::Status SetT5(const BiasFlags& flags, v1::T5Buckets* t5) {
  t5->set_num_buckets(flags.num_buckets);
  t5->set_max_distance(flags.max_distance);
  t5->set_bidirectional(flags.bidirectional);
  if (flags.weights.empty()) return absl::OkStatus();
  return ReadTensor("--weights", flags.weights, t5->mutable_weights());
}

absl::Status SetKerple(const BiasFlags& flags, v1::Kerple* kerple) {
  const absl::StatusOr<v1::Kerple::Kernel> kernel =
      ParseEnum<v1::Kerple::Kernel>("--kerple", "KERNEL_", flags.kerple);
  if (!kernel.ok()) return kernel.status();
  kerple->set_kernel(*kernel);
  absl::Status status = ParseNumbers("--r1", flags.r1, kerple->mutable_r1());
  if (status.ok()) {
    status = ParseNumbers("--r2", flags.r2, kerple->mutable_r2());
  }
  return status;
}

absl::Status SetFire(const BiasFlags& flags, v1::Fire* fire) {
  fire->set_c(flags.c);
  fire->set_threshold(flags.threshold);
  fire->set_epsilon(flags.epsilon);
  return ReadTensors("--fire", flags.fire,
                     {{"w1", fire->mutable_w1()},
                      {"b1", fire->mutable_b1()},
                      {"w2", fire->mutable_w2()},
                      {"b2", fire->mutable_b2()}});
}

absl::Status SetUntied(const BiasFlags& flags, v1::UntiedPositions* untied) {
  if (flags.scale) untied->set_scale(*flags.scale);
  return ReadTensors("--untied-positions", flags.untied_positions,
                     {{"position_queries", untied->mutable_position_queries()},
                      {"position_keys", untied->mutable_position_keys()}});
}

absl::Status SetIndex(const BiasFlags& flags, v1::RelativeIndex* index) {
  if (!flags.clip.empty()) {
    const absl::StatusOr<std::vector<std::int64_t>> ends =
        ParseIntegers("--clip", flags.clip);
    if (!ends.ok()) return ends.status();
    if (ends->size() != 2 ||
        (*ends)[0] != static_cast<std::int32_t>((*ends)[0]) ||
        (*ends)[1] != static_cast<std::int32_t>((*ends)[1])) {
      return UsageError("--clip: left and right are needed; write 16,16");
    }
    index->mutable_clip()->set_left(static_cast<std::int32_t>((*ends)[0]));
    index->mutable_clip()->set_right(static_cast<std::int32_t>((*ends)[1]));
  } else if (flags.deberta) {
    index->mutable_deberta()->set_max_position(*flags.deberta);
    index->mutable_deberta()->set_bucket_size(flags.bucket_size);
  } else {
    const absl::StatusOr<std::vector<std::int32_t>> extents =
        ParseExtents("--grid", flags.grid);
    if (!extents.ok()) return extents.status();
    index->mutable_grid()->mutable_extents()->Assign(extents->begin(),
                                                     extents->end());
  }
  return absl::OkStatus();
}

}  // namespace

void AddBiasFlags(CLI::App* app, BiasFlags* flags) {
  const char* group = "Bias";
  const auto add = [&](const char* name, auto* value, const char* text,
                       const char* type) {
    return app->add_option(name, *value, text)->group(group)->type_name(type);
  };
  const auto add_flag = [&](const char* name, bool* value, const char* text) {
    return app->add_flag(name, *value, text)->group(group);
  };
  CLI::Option* const alibi =
      add("--alibi", &flags->alibi, "ALiBi for so many heads", "HEADS");
  add("--max-bias", &flags->max_bias, "Of its rule for slopes (default 8)", "X")
      ->needs(alibi);
  add("--slopes", &flags->slopes, "Instead of that rule: one per head", "LIST")
      ->needs(alibi);

  CLI::Option* const t5 =
      add_flag("--t5", &flags->t5, "T5's buckets; numbers without --weights");
  add("--num-buckets", &flags->num_buckets, "Default 32", "N")->needs(t5);
  add("--max-distance", &flags->max_distance, "Default 128", "N")->needs(t5);
  add_flag("--bidirectional", &flags->bidirectional,
           "Half of the buckets are for later keys (encoders)")
      ->needs(t5);
  add("--weights", &flags->weights,
      "[num_buckets, heads]: an .npy, or FILE.safetensors:NAME", "FILE")
      ->needs(t5);

  CLI::Option* const kerple =
      add("--kerple", &flags->kerple, "KERPLE: logarithmic or power", "KERNEL");
  kerple->needs(add("--r1", &flags->r1, "One per head", "LIST"));
  kerple->needs(add("--r2", &flags->r2, "One per head", "LIST"));
  app->get_option("--r1")->needs(kerple);
  app->get_option("--r2")->needs(kerple);

  CLI::Option* const fire =
      add("--fire", &flags->fire,
          "FIRE: a .safetensors file with w1, b1, w2 and b2", "FILE");
  for (CLI::Option* option :
       {add("--c", &flags->c, "Of FIRE", "X"),
        add("--threshold", &flags->threshold, "Of FIRE", "X"),
        add("--epsilon", &flags->epsilon, "Of FIRE: 1e-6 in its code", "X")}) {
    option->needs(fire);
  }

  CLI::Option* const sandwich = add("--sandwich", &flags->sandwich,
                                    "Sandwich for so many heads", "HEADS");
  sandwich->needs(
      add("--dim", &flags->dim, "Of Sandwich: 128 in the paper", "N"));
  app->get_option("--dim")->needs(sandwich);

  CLI::Option* const untied =
      add("--untied-positions", &flags->untied_positions,
          "TUPE: a .safetensors file with position_queries and position_keys",
          "FILE");
  add("--scale", &flags->scale, "Of TUPE (default 1)", "X")->needs(untied);

  group = "Indices";
  CLI::Option* const clip = add(
      "--clip", &flags->clip, "Shaw's clipped distances: 16,16", "LEFT,RIGHT");
  CLI::Option* const deberta =
      add("--deberta", &flags->deberta, "DeBERTa's buckets", "MAX_POSITION");
  add("--bucket-size", &flags->bucket_size, "0: none of the logarithmic ones",
      "N")
      ->needs(deberta);
  CLI::Option* const grid =
      add("--grid", &flags->grid, "Cells of an image's window: 7x7", "EXTENTS");

  const std::initializer_list<CLI::Option*> kinds = {
      alibi, t5, kerple, fire, sandwich, untied, clip, deberta, grid};
  for (CLI::Option* a : kinds) {
    for (CLI::Option* b : kinds) {
      if (a != b) a->excludes(b);
    }
  }
}

absl::StatusOr<v1::Bias> BuildBias(const BiasFlags& flags) {
  v1::Bias bias;
  absl::Status status;
  if (flags.alibi) {
    status = SetAlibi(flags, bias.mutable_alibi());
  } else if (flags.t5) {
    status = SetT5(flags, bias.mutable_t5());
  } else if (!flags.kerple.empty()) {
    status = SetKerple(flags, bias.mutable_kerple());
  } else if (!flags.fire.empty()) {
    status = SetFire(flags, bias.mutable_fire());
  } else if (flags.sandwich) {
    bias.mutable_sandwich()->set_heads(*flags.sandwich);
    bias.mutable_sandwich()->set_dim(flags.dim);
  } else if (!flags.untied_positions.empty()) {
    status = SetUntied(flags, bias.mutable_untied_positions());
  } else if (!flags.clip.empty() || flags.deberta || !flags.grid.empty()) {
    status = SetIndex(flags, bias.mutable_relative_index());
  } else {
    status = UsageError(
        "one of --alibi, --t5, --kerple, --fire, --sandwich, "
        "--untied-positions, --clip, --deberta and --grid is required");
  }
  if (!status.ok()) return status;
  return bias;
}

}  // namespace posenc::cli
