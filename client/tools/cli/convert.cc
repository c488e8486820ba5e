// `posenc convert`: reorders the rows of projection weights, so that a model
// that was trained with one pairing of channels runs with another.

#include <memory>

#include "absl/strings/str_cat.h"
#include "client/tools/arguments/connection.h"
#include "client/tools/arguments/enum_flags.h"
#include "client/tools/arguments/transform.h"
#include "client/tools/cli/commands.h"
#include "client/tools/files/status.h"
#include "client/tools/files/tensor_file.h"

namespace posenc::cli {
namespace {

// The projections of q and k, by the names of transformers (q_proj) and of Meta
// and Mistral (wq). Only q and k are rotated, so only their projections are
// reordered.
const char* const kDefaultTensors[] = {"*[qk]_proj.weight", "*[qk]_proj.bias",
                                       "*.w[qk].weight", "*.w[qk].bias"};

// `args` has the heads of queries, but no weight. If kv_heads is 0, keys have
// as many heads as queries.
struct ConvertFlags {
  ConvertPairingArgs args;
  std::int32_t kv_heads = 0;
  TransformFlags files;
};

// Returns true for a projection of keys. Many models have fewer heads for keys
// than for queries (grouped-query attention), so --kv-heads is the number of
// heads for keys.
bool IsKeys(const std::string& name) {
  return Matches(name, {"*k_proj*", "*.wk.*", "wk.*"});
}

// Finds a wrong --heads or --kv-heads. The server cannot find this mistake,
// because rows that are cut into the wrong number of heads are still a valid
// weight. In every model the heads of queries and keys have the same width, so
// two widths in one file show the mistake. `first` is the name and the width of
// the first tensor that was checked. A width of 0 means that `tensor` is the
// first tensor.
absl::Status CheckWidth(const std::string& name, const TensorView& tensor,
                        std::int32_t heads,
                        std::pair<std::string, std::int64_t>* first) {
  if (tensor.shape.empty() || heads <= 0 || tensor.shape[0] % heads != 0) {
    return absl::OkStatus();  // the server reports the fault
  }
  const std::int64_t width = tensor.shape[0] / heads;
  if (first->second == 0) *first = {name, width};
  if (width == first->second) return absl::OkStatus();
  return UsageError(absl::StrCat(
      "--heads, --kv-heads: heads of ", name, " would be ", width,
      " rows wide (", tensor.shape[0], " / ", heads, "), those of ",
      first->first, " ", first->second, "; give both as the model has them"));
}

absl::Status RunConvert(const ConvertFlags& flags, const GlobalFlags& globals) {
  ConvertPairingArgs args = flags.args;
  ASSIGN_OR_RETURN(const Connection connection, Connection::Open(globals));
  std::pair<std::string, std::int64_t> first;
  return Transform(
      flags.files, globals, "converted",
      {std::begin(kDefaultTensors), std::end(kDefaultTensors)},
      [&](const SafetensorsEntry& entry,
          const TensorView& tensor) -> absl::StatusOr<TensorResult> {
        const std::string& name = entry.name;
        args.heads = IsKeys(name) && flags.kv_heads != 0 ? flags.kv_heads
                                                         : flags.args.heads;
        RETURN_IF_ERROR(CheckWidth(name, tensor, args.heads, &first));
        args.weight = tensor;
        return connection.client().ConvertPairing(args);
      });
}

}  // namespace

Command AddConvert(CLI::App* app, const GlobalFlags* globals) {
  const auto flags = std::make_shared<ConvertFlags>();
  ConvertPairingArgs* const args = &flags->args;
  AddEnumFlag(app, "--old-pairing", &args->old_pairing,
              "Pairing of the weights: half_split or interleaved",
              {.required = true});
  AddEnumFlag(app, "--new-pairing", &args->new_pairing, "Pairing of the result",
              {.required = true});
  AddFlag(app, "--heads", &args->heads, "N", "Heads of the queries",
          {.required = true});
  AddFlag(app, "--kv-heads", &flags->kv_heads, "N",
          "Heads of k_proj and wk (default --heads)");
  AddFlag(app, "--rotary-dim", &args->rotary_dim, "N",
          "Channels of a head that rotate (default all)");
  args->slice = v1::ROTARY_SLICE_LEADING;
  AddEnumFlag(app, "--slice", &args->slice,
              "Rotated channels: leading or trailing");
  AddTransformFlags(app, "*[qk]_proj and *.w[qk], .weight and .bias",
                    &flags->files);
  return [flags, globals] { return RunConvert(*flags, *globals); };
}

}  // namespace posenc::cli
