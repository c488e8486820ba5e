// `posenc scores`: attention scores of the encodings that are no sum of q . k
// and a bias: Shaw, Transformer-XL and DeBERTa.

#include <algorithm>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/check/element.h"
#include "client/cli/commands.h"
#include "client/cli/connection.h"
#include "client/cli/print.h"
#include "client/cli/progress.h"
#include "client/cli/status.h"
#include "client/cli/tensor_file.h"

namespace posenc::cli {
namespace {

// One of --shaw, --transformer-xl and --deberta is given; texts name files with
// trained tables.
struct ScoresFlags {
  std::string shaw;
  std::optional<std::int32_t> left;
  std::string transformer_xl;
  std::int64_t clamp_distance = 0;
  std::optional<std::int32_t> deberta;
  std::int32_t bucket_size = 0;
  bool paper_position_to_content = false;
  std::string position_keys;
  std::string position_queries;
  std::int64_t query_start = 0;
  std::int64_t key_start = 0;
  std::string dtype;
  std::string in;
  std::string q = "q";
  std::string k = "k";
  std::string out;
};

absl::Status SetDeberta(const ScoresFlags& flags, v1::DebertaScore* deberta) {
  deberta->mutable_buckets()->set_max_position(*flags.deberta);
  deberta->mutable_buckets()->set_bucket_size(flags.bucket_size);
  deberta->set_paper_position_to_content(flags.paper_position_to_content);
  absl::Status status;
  if (!flags.position_keys.empty()) {
    status = ReadTensor("--position-keys", flags.position_keys,
                        deberta->mutable_position_keys());
  }
  if (status.ok() && !flags.position_queries.empty()) {
    status = ReadTensor("--position-queries", flags.position_queries,
                        deberta->mutable_position_queries());
  }
  return status;
}

absl::StatusOr<v1::RelativeScore> BuildScore(const ScoresFlags& flags) {
  v1::RelativeScore score;
  absl::Status status;
  if (!flags.shaw.empty()) {
    if (flags.left) score.mutable_shaw()->set_left(*flags.left);
    status = ReadTensor("--shaw", flags.shaw,
                        score.mutable_shaw()->mutable_key_table());
  } else if (!flags.transformer_xl.empty()) {
    v1::TransformerXlScore* const xl = score.mutable_transformer_xl();
    xl->set_clamp_distance(flags.clamp_distance);
    status = ReadTensors("--transformer-xl", flags.transformer_xl,
                         {{"u", xl->mutable_u()},
                          {"v", xl->mutable_v()},
                          {"r", xl->mutable_r()}});
  } else if (flags.deberta) {
    status = SetDeberta(flags, score.mutable_deberta());
  } else {
    status =
        UsageError("one of --shaw, --transformer-xl and --deberta is required");
  }
  if (!status.ok()) return status;
  return score;
}

// The tensor of this name, of a dtype that can be computed with.
absl::StatusOr<TensorView> Find(TensorFile* file, const std::string& name) {
  const absl::StatusOr<std::vector<SafetensorsEntry*>> found =
      file->Select({name}, {});
  if (!found.ok()) return found.status();
  return AsTensor(*(*found)[0]);
}

// Prints the scores, or what is in the file if there is one.
absl::Status Show(const TensorView& scores, const ScoresFlags& flags,
                  const GlobalFlags& globals) {
  if (globals.json) {
    nlohmann::ordered_json json;
    json["scores"] = TensorJson(scores);
    if (flags.out.empty()) {
      const absl::Status status = AddValues(scores, &json["scores"]);
      if (!status.ok()) return status;
    }
    PrintJson(json);
    return absl::OkStatus();
  }
  std::printf("scores  %s %s\n", check::DtypeName(scores.dtype).c_str(),
              check::ShapeText(scores.shape).c_str());
  if (check::ElementCount(scores.shape) > 0 && scores.shape.size() == 4) {
    std::printf("  head 0 of the first sequence: queries down, keys across\n");
    PrintMatrix(scores, 0, scores.shape[2], scores.shape[3], flags.query_start,
                flags.key_start);
  }
  return absl::OkStatus();
}

absl::Status RunScores(const ScoresFlags& flags, const GlobalFlags& globals) {
  if (!HasExtension(flags.in, ".safetensors") && !IsStandardStream(flags.in)) {
    return UsageError("--in: a .safetensors file with q and k is needed");
  }
  const absl::Status out = CheckOut(flags.out);
  if (!out.ok()) return out;
  ScoreRelativeArgs args;
  args.query_start = flags.query_start;
  args.key_start = flags.key_start;
  if (!flags.dtype.empty()) {
    const absl::StatusOr<v1::Dtype> dtype =
        ParseEnum<v1::Dtype>("--dtype", "DTYPE_", flags.dtype);
    if (!dtype.ok()) return dtype.status();
    args.dtype = *dtype;
  }
  absl::StatusOr<v1::RelativeScore> score = BuildScore(flags);
  if (!score.ok()) return score.status();
  args.score = *std::move(score);
  absl::StatusOr<TensorFile> file = TensorFile::Read("--in", flags.in);
  if (!file.ok()) return file.status();
  if (file->is_npy()) {
    return UsageError("--in: a .safetensors file with q and k is needed");
  }
  const absl::StatusOr<TensorView> q = Find(&*file, flags.q);
  if (!q.ok()) return q.status();
  const absl::StatusOr<TensorView> k = Find(&*file, flags.k);
  if (!k.ok()) return k.status();
  args.q = *q;
  args.k = *k;
  const absl::StatusOr<Connection> connection = Connection::Open(globals);
  if (!connection.ok()) return connection.status();
  absl::StatusOr<TensorResult> result = absl::InternalError("not called");
  {
    const Progress progress("scoring");
    result = connection->client().ScoreRelative(args);
  }
  if (!result.ok()) return result.status();
  if (!flags.out.empty()) {
    const absl::Status written =
        WriteTensor(flags.out, "scores", result->tensor);
    if (!written.ok()) return written;
  }
  return Show(result->tensor, flags, globals);
}

}  // namespace

Command AddScores(CLI::App* app, const GlobalFlags* globals) {
  const auto flags = std::make_shared<ScoresFlags>();
  const auto add = [&](const char* name, auto* value, const char* text,
                       const char* type) {
    return app->add_option(name, *value, text)->type_name(type);
  };
  add("--in", &flags->in, "A .safetensors file with q and k, [B, H, S, D]",
      "FILE")
      ->required();
  add("--q", &flags->q, "Name of q in the file", "NAME")->capture_default_str();
  add("--k", &flags->k, "Name of k in the file", "NAME")->capture_default_str();
  CLI::Option* const shaw =
      add("--shaw", &flags->shaw,
          "Shaw's table [rows, D]: an .npy, or FILE.safetensors:NAME", "FILE");
  add("--left", &flags->left, "Its reach before the query (default half)", "N")
      ->needs(shaw);
  CLI::Option* const xl =
      add("--transformer-xl", &flags->transformer_xl,
          "A .safetensors file with u, v [H, D] and r [H, R, D]", "FILE");
  add("--clamp-distance", &flags->clamp_distance,
      "Greater distances read this one's row", "N")
      ->needs(xl);
  CLI::Option* const deberta =
      add("--deberta", &flags->deberta, "DeBERTa's buckets", "MAX_POSITION");
  for (CLI::Option* option :
       {add("--bucket-size", &flags->bucket_size,
            "0: none of the logarithmic ones", "N"),
        add("--position-keys", &flags->position_keys,
            "[H, 2 span, D]: an .npy, or FILE.safetensors:NAME", "FILE"),
        add("--position-queries", &flags->position_queries, "Likewise", "FILE"),
        app->add_flag("--paper-position-to-content",
                      flags->paper_position_to_content,
                      "The last term as the paper writes it")}) {
    option->needs(deberta);
  }
  shaw->excludes(xl)->excludes(deberta);
  xl->excludes(deberta);
  add("--query-start", &flags->query_start, "Position of the first query", "N")
      ->capture_default_str();
  add("--key-start", &flags->key_start, "Position of the first key", "N")
      ->capture_default_str();
  add("--dtype", &flags->dtype, "Of the scores (default float32)", "NAME");
  add("--out", &flags->out,
      "An .npy, or .safetensors with the tensor scores; without, a corner is "
      "printed",
      "FILE");
  return [flags, globals] { return RunScores(*flags, *globals); };
}

}  // namespace posenc::cli
