// `posenc bias`: an attention bias [heads, queries, keys], or the indices of
// relative positions. With --out the matrix goes to the file tile by tile,
// since it may be larger than the memory; without, a corner is printed.

#include <algorithm>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/check/element.h"
#include "client/cli/bias_flags.h"
#include "client/cli/commands.h"
#include "client/cli/connection.h"
#include "client/cli/enum_flags.h"
#include "client/cli/matrix_file.h"
#include "client/cli/print.h"
#include "client/cli/progress.h"
#include "client/cli/status.h"

namespace posenc::cli {
namespace {

// Heads that are printed; the others differ by their slopes or weights only.
constexpr std::int64_t kShownHeads = 2;
// If the matrix is only printed, so many keys are computed: more than fit on a
// line.
constexpr std::int64_t kPrintedKeys = 24;

// Queries stand at query_start ... query_start + query_length - 1; keys
// likewise. Tiles are the messages of the answer; 0 leaves their size to the
// server.
struct BiasCommandFlags {
  FieldFlags bias{v1::Bias::descriptor()};
  std::int64_t query_start = 0;
  std::int64_t query_length = 0;
  std::int64_t key_start = 0;
  std::optional<std::int64_t> key_length;
  std::int64_t query_tile = 0;
  std::int64_t key_tile = 0;
  v1::Dtype dtype = v1::DTYPE_UNSPECIFIED;
  bool causal = false;
  std::string out;
};

void PrintHeads(const TensorView& bias, const v1::BuildBiasRequest& request) {
  const std::int64_t rows = bias.shape[1], columns = bias.shape[2];
  for (std::int64_t h = 0; h < std::min(bias.shape[0], kShownHeads); ++h) {
    std::printf("  head %lld of %lld: queries down, keys across\n",
                static_cast<long long>(h),
                static_cast<long long>(bias.shape[0]));
    PrintMatrix(bias, h * rows * columns, rows, columns, request.query_start(),
                request.key_start());
  }
}

// Without --out: prints a corner of the matrix, or with --json all of it if it
// is small enough.
absl::Status Print(v1::BuildBiasRequest request, const Connection& connection,
                   const GlobalFlags& globals) {
  const std::int64_t queries = request.query_length();
  const std::int64_t keys = request.key_length();
  if (globals.json) {
    // Refused before the work: one head alone is too much to print.
    if (queries > 0 && keys > kMaxPrintedValues / queries) {
      return UsageError(absl::StrCat(
          "--json: ", queries, " x ", keys, " values; write more than ",
          kMaxPrintedValues, " to a file with --out"));
    }
  } else {
    // Asks for no more than is seen, and for one row and column more, so that
    // the printer knows that there are more and shows dots.
    request.set_query_length(std::min(queries, kShownRows + 1));
    request.set_key_length(std::min(keys, kPrintedKeys + 1));
  }
  const absl::StatusOr<TensorResult> bias =
      connection.client().BuildBias(request);
  if (!bias.ok()) return bias.status();
  if (globals.json) {
    nlohmann::ordered_json json;
    json["bias"] = TensorJson(bias->tensor);
    const absl::Status status = AddValues(bias->tensor, &json["bias"]);
    if (!status.ok()) return status;
    PrintJson(json);
    return absl::OkStatus();
  }
  std::printf("bias  %s %s\n", check::DtypeName(bias->tensor.dtype).c_str(),
              check::ShapeText({bias->tensor.shape[0], queries, keys}).c_str());
  PrintHeads(bias->tensor, request);
  return absl::OkStatus();
}

// With --out: every tile goes to its place in the file as it comes.
absl::Status Write(const v1::BuildBiasRequest& request, const std::string& path,
                   const Connection& connection, const GlobalFlags& globals) {
  absl::StatusOr<MatrixFile> file = MatrixFile::Create(path, "bias");
  if (!file.ok()) return file.status();
  const double elements = static_cast<double>(request.query_length()) *
                          static_cast<double>(request.key_length());
  double done = 0;
  absl::Status written;
  absl::Status status;
  {
    Progress progress("building the bias");
    status = connection.client().BuildBias(request, [&](const BiasTile& tile) {
      written = file->Write(request, tile);
      if (!written.ok()) return false;
      done += static_cast<double>(tile.tensor.shape[1]) *
              static_cast<double>(tile.tensor.shape[2]);
      progress.Set(
          absl::StrFormat("building the bias: %.0f %%", 100 * done / elements));
      return true;
    });
  }
  if (!written.ok()) return written;
  if (!status.ok()) return status;
  status = file->Commit();
  if (!status.ok()) return status;
  if (globals.json) {
    PrintJson({{"out", path}, {"bias", TensorJson(file->matrix())}});
  } else {
    std::printf("bias  %s %s\n", check::DtypeName(file->matrix().dtype).c_str(),
                check::ShapeText(file->matrix().shape).c_str());
  }
  return absl::OkStatus();
}

absl::Status RunBias(const BiasCommandFlags& flags,
                     const GlobalFlags& globals) {
  v1::BuildBiasRequest request;
  absl::StatusOr<v1::Bias> bias = BuildBias(flags.bias);
  if (!bias.ok()) return bias.status();
  *request.mutable_bias() = *std::move(bias);
  request.set_query_start(flags.query_start);
  request.set_query_length(flags.query_length);
  request.set_key_start(flags.key_start);
  // By default keys reach up to the last query.
  request.set_key_length(flags.key_length.value_or(
      flags.query_start + flags.query_length - flags.key_start));
  request.set_query_tile(flags.query_tile);
  request.set_key_tile(flags.key_tile);
  request.set_causal(flags.causal);
  request.set_dtype(flags.dtype);
  const absl::StatusOr<Connection> connection = Connection::Open(globals);
  if (!connection.ok()) return connection.status();
  return flags.out.empty() ? Print(request, *connection, globals)
                           : Write(request, flags.out, *connection, globals);
}

}  // namespace

Command AddBias(CLI::App* app, const GlobalFlags* globals) {
  const auto flags = std::make_shared<BiasCommandFlags>();
  AddBiasFlags(app, &flags->bias);
  AddValue(app, "--query-start", &flags->query_start, "N",
           "Position of the first query")
      ->capture_default_str();
  AddValue(app, "--query-length", &flags->query_length, "N", "Queries")
      ->required();
  AddValue(app, "--key-start", &flags->key_start, "N",
           "Position of the first key")
      ->capture_default_str();
  AddValue(app, "--key-length", &flags->key_length, "N",
           "Keys (default: up to the last query)");
  AddValue(app, "--query-tile", &flags->query_tile, "N",
           "Queries of a message (default: the server's choice)");
  AddValue(app, "--key-tile", &flags->key_tile, "N", "Keys of a message");
  AddEnumFlag(app, "--dtype", &flags->dtype,
              "float32, float16, bfloat16, float64 (indices: int32)");
  app->add_flag("--causal", flags->causal,
                "-infinity where the key comes after the query");
  AddValue(app, "--out", &flags->out, "FILE",
           "An .npy, or .safetensors with the tensor bias, written "
           "tile by tile; without, a corner is printed");
  return [flags, globals] { return RunBias(*flags, *globals); };
}

}  // namespace posenc::cli
