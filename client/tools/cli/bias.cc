// `posenc bias`: builds an attention bias [heads, queries, keys], or the
// indices of relative positions. With --out it writes the matrix to a file.
// Without --out it prints a corner of the matrix.

#include <algorithm>
#include <cstdint>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/tools/arguments/connection.h"
#include "client/tools/arguments/field_flags.h"
#include "client/tools/cli/commands.h"
#include "client/tools/files/npy.h"
#include "client/tools/files/print.h"
#include "client/tools/files/status.h"
#include "client/tools/files/tensor_file.h"

namespace posenc::cli {
namespace {

// Number of printed heads. Other heads differ only by their slopes or weights.
constexpr std::int64_t kShownHeads = 2;
// Upper bound on the number of keys that are computed for printing. A line has
// space for fewer keys.
constexpr std::int64_t kPrintedKeys = 24;

constexpr FieldFlag kBiases[] = {
    {"--alibi", "alibi.heads", "HEADS", "ALiBi: number of heads"},
    {"--max-bias", "alibi.max_bias", "X",
     "Exponent in the slope rule (default 8)", "--alibi"},
    {"--slopes", "alibi.slopes", "LIST",
     "Slopes instead of the rule: one per head", "--alibi"},

    {"--t5", "t5", nullptr, "T5's buckets (their indices without --weights)"},
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
    {"--c", "fire.c", "X", "Parameter of FIRE", "--fire"},
    {"--threshold", "fire.threshold", "X", "Parameter of FIRE", "--fire"},
    {"--epsilon", "fire.epsilon", "X", "Parameter of FIRE; 1e-6 in its code",
     "--fire"},

    {"--sandwich", "sandwich.heads", "HEADS", "Sandwich: number of heads"},
    {"--dim", "sandwich.dim", "N", "Dim of Sandwich; 128 in the paper",
     "--sandwich", true},

    {"--untied-positions", "untied_positions", "FILE",
     "TUPE: a .safetensors file with position_queries and position_keys"},
    {"--scale", "untied_positions.scale", "X", "Factor in TUPE (default 1)",
     "--untied-positions"},
};

constexpr FieldFlag kIndices[] = {
    {"--clip", nullptr, "LEFT,RIGHT", "Shaw's clipped distances: 16,16"},
    {"--deberta", "relative_index.deberta.max_position", "MAX_POSITION",
     "DeBERTa's buckets"},
    {"--bucket-size", "relative_index.deberta.bucket_size", "N",
     "0: no logarithmic buckets", "--deberta"},
    {"--grid", "relative_index.grid.extents", "EXTENTS",
     "Cells of an image's window: 7x7"},
};

absl::Status SetClip(const std::string& text, v1::ClippedDistance* clip) {
  ASSIGN_OR_RETURN(const auto ends, ParseIntegers("--clip", text));
  if (ends.size() != 2 || ends[0] != static_cast<std::int32_t>(ends[0]) ||
      ends[1] != static_cast<std::int32_t>(ends[1])) {
    return UsageError("--clip: left and right are needed; write 16,16");
  }
  clip->set_left(static_cast<std::int32_t>(ends[0]));
  clip->set_right(static_cast<std::int32_t>(ends[1]));
  return absl::OkStatus();
}

// Queries have the positions query_start ... query_start + query_length - 1.
// Keys have the positions key_start ... key_start + key_length - 1. Each
// message of the answer is one tile of the matrix.
constexpr FieldFlag kRequest[] = {
    {"--query-start", "query_start", "N", "Position of the first query", kAlone,
     false, "0"},
    {"--query-length", "query_length", "N", "Queries", kAlone, true},
    {"--key-start", "key_start", "N", "Position of the first key", kAlone,
     false, "0"},
    {"--key-length", "key_length", "N", "Keys (default: up to the last query)",
     kAlone},
    {"--query-tile", "query_tile", "N",
     "Queries per message (default: the server's choice)", kAlone},
    {"--key-tile", "key_tile", "N", "Keys per message", kAlone},
    {"--dtype", "dtype", "NAME",
     "float32, float16, bfloat16, float64 (indices: int32)", kAlone},
    {"--causal", "causal", nullptr,
     "-infinity where the key comes after the query", kAlone},
};

struct BiasCommandFlags {
  FieldFlags bias{v1::Bias::descriptor()};
  FieldFlags request{v1::BuildBiasRequest::descriptor()};
  std::string out;
};

void PrintHeads(const TensorView& bias, const v1::BuildBiasRequest& request) {
  const std::int64_t rows = bias.shape[1], columns = bias.shape[2];
  for (std::int64_t h = 0; h < std::min(bias.shape[0], kShownHeads); ++h) {
    absl::PrintF("  head %d of %d: queries down, keys across\n", h,
                 bias.shape[0]);
    PrintMatrix(bias, h * rows * columns, rows, columns, request.query_start(),
                request.key_start());
  }
}

// Prints the matrix if --out is not given: a corner of it as text, or the whole
// matrix with --json. For --json the matrix must be small enough to print.
absl::Status Print(v1::BuildBiasRequest request, const Connection& connection,
                   const GlobalFlags& globals) {
  const std::int64_t queries = request.query_length();
  const std::int64_t keys = request.key_length();
  if (globals.json) {
    // Refuses the matrix before the call if even one head has too many values
    // to print.
    if (queries > 0 && keys > kMaxPrintedValues / queries) {
      return UsageError(absl::StrCat(
          "--json: ", queries, " x ", keys, " values; write more than ",
          kMaxPrintedValues, " to a file with --out"));
    }
  } else {
    // Requests one row and one column more than are shown, so that the printer
    // shows dots if the matrix is larger.
    request.set_query_length(std::min(queries, kShownRows + 1));
    request.set_key_length(std::min(keys, kPrintedKeys + 1));
  }
  ASSIGN_OR_RETURN(const auto bias, connection.client().BuildBias(request));
  if (globals.json) {
    nlohmann::ordered_json json;
    json["bias"] = TensorJson(bias.tensor);
    RETURN_IF_ERROR(AddValues(bias.tensor, &json["bias"]));
    PrintJson(json);
    return absl::OkStatus();
  }
  PrintForm("bias", bias.tensor.dtype, {bias.tensor.shape[0], queries, keys});
  PrintHeads(bias.tensor, request);
  return absl::OkStatus();
}

absl::Status Write(const v1::BuildBiasRequest& request, const std::string& path,
                   const Connection& connection, const GlobalFlags& globals) {
  RETURN_IF_ERROR(CheckOut(path));
  if (request.dtype() != v1::DTYPE_UNSPECIFIED && IsNpyOutput(path)) {
    // Refuses bfloat16 before the call, because an .npy file cannot hold it.
    RETURN_IF_ERROR(
        InFile(path, NpyHeader({request.dtype(), {}, {}})).status());
  }
  ASSIGN_OR_RETURN(const auto bias, connection.client().BuildBias(request));
  RETURN_IF_ERROR(WriteTensor(path, "bias", bias.tensor));
  if (globals.json) {
    PrintJson({{"out", path}, {"bias", TensorJson(bias.tensor)}});
  } else {
    PrintForm("bias", bias.tensor.dtype, bias.tensor.shape);
  }
  return absl::OkStatus();
}

absl::Status RunBias(const BiasCommandFlags& flags,
                     const GlobalFlags& globals) {
  v1::BuildBiasRequest request;
  RETURN_IF_ERROR(flags.bias.Read(request.mutable_bias()));
  if (flags.bias.Given("--clip")) {
    RETURN_IF_ERROR(SetClip(
        flags.bias.Text("--clip"),
        request.mutable_bias()->mutable_relative_index()->mutable_clip()));
  }
  RETURN_IF_ERROR(flags.request.Read(&request));
  if (!flags.request.Given("--key-length")) {
    request.set_key_length(request.query_start() + request.query_length() -
                           request.key_start());
  }
  ASSIGN_OR_RETURN(const Connection connection, Connection::Open(globals));
  if (flags.out.empty()) return Print(request, connection, globals);
  return Write(request, flags.out, connection, globals);
}

}  // namespace

Command AddBias(CLI::App* app, const GlobalFlags* globals) {
  const auto flags = std::make_shared<BiasCommandFlags>();
  flags->bias.Add(app, "Bias", kBiases);
  flags->bias.Add(app, "Indices", kIndices);
  flags->request.Add(app, "", kRequest);
  AddFlag(app, "--out", &flags->out, "FILE",
          "An .npy, or .safetensors with the tensor bias (default: prints a "
          "corner)");
  return [flags, globals] { return RunBias(*flags, *globals); };
}

}  // namespace posenc::cli
