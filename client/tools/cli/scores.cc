// `posenc scores`: attention scores of encodings that do more than add a bias
// to q . k: Shaw, Transformer-XL and DeBERTa.

#include <cstdio>
#include <memory>

#include "client/tools/arguments/connection.h"
#include "client/tools/arguments/enum_flags.h"
#include "client/tools/arguments/field_flags.h"
#include "client/tools/check/element.h"
#include "client/tools/cli/commands.h"
#include "client/tools/files/print.h"
#include "client/tools/files/status.h"
#include "client/tools/files/tensor_file.h"

namespace posenc::cli {
namespace {

constexpr FieldFlag kScores[] = {
    {"--shaw", "shaw.key_table", "FILE",
     "Shaw's table [rows, D]: an .npy, or FILE.safetensors:NAME"},
    {"--left", "shaw.left", "N", "Table rows left of the query (default: half)",
     "--shaw"},
    {"--transformer-xl", "transformer_xl", "FILE",
     "A .safetensors file with u, v [H, D] and r [H, R, D]"},
    {"--clamp-distance", "transformer_xl.clamp_distance", "N",
     "Greater distances use the row of N", "--transformer-xl"},
    {"--deberta", "deberta.buckets.max_position", "MAX_POSITION",
     "DeBERTa's buckets"},
    {"--bucket-size", "deberta.buckets.bucket_size", "N",
     "0: no logarithmic buckets", "--deberta"},
    {"--position-keys", "deberta.position_keys", "FILE",
     "[H, 2 span, D]: an .npy, or FILE.safetensors:NAME", "--deberta"},
    {"--position-queries", "deberta.position_queries", "FILE",
     "As --position-keys", "--deberta"},
    {"--paper-position-to-content", "deberta.paper_position_to_content",
     nullptr, "The last term as the paper writes it", "--deberta"},
};

// `args` has the arguments that do not come from files.
struct ScoresFlags {
  FieldFlags score{v1::RelativeScore::descriptor()};
  ScoreRelativeArgs args;
  std::string in;
  std::string q = "q";
  std::string k = "k";
  std::string out;
};

// Returns the tensor of this name; its dtype must be a dtype of the contract.
absl::StatusOr<TensorView> Find(TensorFile* file, const std::string& name) {
  ASSIGN_OR_RETURN(const auto found, file->Select({name}, {}));
  return AsTensor(*found[0]);
}

// Prints dtype, shape and a corner of the scores. With --json prints all values
// instead of the corner, unless they are written to a file.
absl::Status Show(const TensorView& scores, const ScoresFlags& flags,
                  const GlobalFlags& globals) {
  if (globals.json) {
    nlohmann::ordered_json json;
    json["scores"] = TensorJson(scores);
    if (flags.out.empty()) RETURN_IF_ERROR(AddValues(scores, &json["scores"]));
    PrintJson(json);
    return absl::OkStatus();
  }
  PrintForm("scores", scores.dtype, scores.shape);
  if (check::ElementCount(scores.shape) > 0 && scores.shape.size() == 4) {
    std::printf("  head 0 of the first sequence: queries down, keys across\n");
    PrintMatrix(scores, 0, scores.shape[2], scores.shape[3],
                flags.args.query_start, flags.args.key_start);
  }
  return absl::OkStatus();
}

absl::Status RunScores(const ScoresFlags& flags, const GlobalFlags& globals) {
  if (!HasExtension(flags.in, ".safetensors") && !IsStandardStream(flags.in)) {
    return UsageError("--in: a .safetensors file with q and k is needed");
  }
  RETURN_IF_ERROR(CheckOut(flags.out));
  ScoreRelativeArgs args = flags.args;
  RETURN_IF_ERROR(flags.score.Read(&args.score));
  ASSIGN_OR_RETURN(TensorFile file, TensorFile::Read("--in", flags.in));
  if (file.is_npy()) {
    return UsageError("--in: a .safetensors file with q and k is needed");
  }
  ASSIGN_OR_RETURN(args.q, Find(&file, flags.q));
  ASSIGN_OR_RETURN(args.k, Find(&file, flags.k));
  ASSIGN_OR_RETURN(const Connection connection, Connection::Open(globals));
  ASSIGN_OR_RETURN(const auto result, connection.client().ScoreRelative(args));
  if (!flags.out.empty()) {
    RETURN_IF_ERROR(WriteTensor(flags.out, "scores", result.tensor));
  }
  return Show(result.tensor, flags, globals);
}

}  // namespace

Command AddScores(CLI::App* app, const GlobalFlags* globals) {
  const auto flags = std::make_shared<ScoresFlags>();
  AddFlag(app, "--in", &flags->in, "FILE",
          "A .safetensors file with q and k, [B, H, S, D]", {.required = true});
  AddFlag(app, "--q", &flags->q, "NAME", "Name of q in the file",
          {.show_default = true});
  AddFlag(app, "--k", &flags->k, "NAME", "Name of k in the file",
          {.show_default = true});
  flags->score.Add(app, "", kScores);
  AddFlag(app, "--query-start", &flags->args.query_start, "N",
          "Position of the first query", {.show_default = true});
  AddFlag(app, "--key-start", &flags->args.key_start, "N",
          "Position of the first key", {.show_default = true});
  AddEnumFlag(app, "--dtype", &flags->args.dtype,
              "Dtype of the scores (default float32)");
  AddFlag(app, "--out", &flags->out, "FILE",
          "An .npy, or .safetensors with the tensor scores (default: prints a "
          "corner)");
  return [flags, globals] { return RunScores(*flags, *globals); };
}

}  // namespace posenc::cli
