#include <algorithm>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/commands.h"
#include "client/cli/element.h"
#include "client/cli/npy.h"
#include "client/cli/progress.h"
#include "client/cli/safetensors.h"
#include "client/cli/session.h"
#include "client/cli/status.h"

namespace posenc::cli {
namespace {

// Without --out, --json prints values: more of them belong into a file.
constexpr std::int64_t kMaxPrintedValues = 65536;

// What fits a screen.
constexpr std::int64_t kShownRows = 8;
constexpr std::int64_t kShownRowsOfFile = 3;
constexpr std::int64_t kShownColumns = 6;

struct TableFlags {
  SourceFlags source;
  std::int64_t rows = 0;
  std::optional<std::int64_t> start;
  std::string ids;
  std::string layout = "half";
  std::string dtype = "float32";
  std::string angles;
  std::int32_t head_dim = 0;
  std::int32_t sinusoidal = 0;
  std::string order;
  std::optional<double> base;
  bool endpoint = false;
  std::string out;
  std::string out_cos;
  std::string out_sin;
};

struct NamedTensor {
  std::string name;
  TensorView tensor;
};

absl::Status SetEncoding(const TableFlags& flags, const Session& session,
                         v1::BuildTableRequest* request) {
  if (flags.sinusoidal != 0) {
    if (!flags.source.Empty() || !flags.angles.empty()) {
      return UsageError(
          "--sinusoidal: excludes --preset, --config, --spec and --angles");
    }
    const absl::StatusOr<v1::SinusoidalOrder> order =
        ParseEnum<v1::SinusoidalOrder>("--order", "SINUSOIDAL_ORDER_",
                                       flags.order);
    if (!order.ok()) return order.status();
    v1::Sinusoidal* const sinusoidal =
        request->mutable_absolute()->mutable_sinusoidal();
    sinusoidal->set_dim(flags.sinusoidal);
    sinusoidal->set_order(*order);
    sinusoidal->set_endpoint(flags.endpoint);
    if (flags.base) sinusoidal->set_base(*flags.base);
    return absl::OkStatus();
  }
  if (!flags.order.empty() || flags.base || flags.endpoint) {
    return UsageError("--order, --base, --endpoint: belong to --sinusoidal");
  }
  absl::StatusOr<v1::RopeSource> source = BuildSource(flags.source);
  if (!source.ok()) return source.status();
  const bool resolve = !source->has_spec() ? !flags.angles.empty()
                                           : source->spec().rotary_dim() == 0 &&
                                                 flags.head_dim != 0;
  if (resolve) {
    // The complete specification of the model, to change one field of it.
    v1::ResolveRopeRequest question;
    *question.mutable_rope() = *source;
    question.set_head_dim(flags.head_dim);
    absl::StatusOr<v1::ResolveRopeResponse> answer =
        session.client().ResolveRope(question);
    if (!answer.ok()) return answer.status();
    source->clear_layer();
    source->clear_profile();
    *source->mutable_spec() = answer->spec();
  }
  if (!flags.angles.empty()) {
    const absl::StatusOr<v1::AnglePrecision> angles =
        ParseEnum<v1::AnglePrecision>("--angles", "ANGLE_PRECISION_",
                                      flags.angles);
    if (!angles.ok()) return angles.status();
    source->mutable_spec()->set_angle_precision(*angles);
  }
  const absl::StatusOr<v1::TableLayout> layout =
      ParseEnum<v1::TableLayout>("--layout", "TABLE_LAYOUT_", flags.layout);
  if (!layout.ok()) return layout.status();
  request->set_layout(*layout);
  *request->mutable_rope() = *std::move(source);
  return absl::OkStatus();
}

absl::Status CheckOutputs(const TableFlags& flags, bool single) {
  const bool npy = HasExtension(flags.out, ".npy");
  if (!flags.out.empty() && !npy && !HasExtension(flags.out, ".safetensors")) {
    return UsageError("--out: neither .npy nor .safetensors");
  }
  if (npy && !single) {
    return UsageError(
        "--out: an .npy file holds one tensor; write cos and sin with "
        "--out-cos and --out-sin, or choose .safetensors");
  }
  if (single && !(flags.out_cos.empty() && flags.out_sin.empty())) {
    return UsageError(
        "--out-cos, --out-sin: the table is one tensor; use "
        "--out");
  }
  for (const std::string& path : {flags.out_cos, flags.out_sin}) {
    if (!path.empty() && !HasExtension(path, ".npy")) {
      return UsageError("--out-cos, --out-sin: an .npy file is needed");
    }
  }
  return absl::OkStatus();
}

absl::Status WriteTensors(const TableFlags& flags,
                          const std::vector<NamedTensor>& tensors) {
  Safetensors file;
  for (const auto& [name, tensor] : tensors) {
    const std::string& path = name == "cos"   ? flags.out_cos
                              : name == "sin" ? flags.out_sin
                                              : flags.out;
    if (HasExtension(path, ".npy")) {
      const absl::Status status = WriteNpy(path, tensor);
      if (!status.ok()) return status;
    }
    const absl::StatusOr<SafetensorsEntry> entry = FromTensor(name, tensor);
    if (!entry.ok()) return FileError(flags.out, entry.status());
    file.entries.push_back(*entry);
  }
  if (!HasExtension(flags.out, ".safetensors")) return absl::OkStatus();
  return WriteSafetensors(flags.out, file);
}

void PrintTensor(const NamedTensor& named, std::int64_t shown) {
  const TensorView& tensor = named.tensor;
  std::printf("%s  %s %s\n", named.name.c_str(),
              DtypeName(tensor.dtype).c_str(), ShapeText(tensor.shape).c_str());
  const std::int64_t count = ElementCount(tensor.shape);
  const std::int64_t rows = tensor.shape.empty() ? 1 : tensor.shape[0];
  const std::int64_t columns = rows > 0 ? count / rows : 0;
  for (std::int64_t row = 0; row < std::min(rows, shown); ++row) {
    std::printf(" ");
    for (std::int64_t i = 0; i < std::min(columns, kShownColumns); ++i) {
      std::printf(" %12.9f", ElementAt(tensor, row * columns + i));
    }
    std::printf("%s\n", columns > kShownColumns ? "  ..." : "");
  }
  if (rows > shown) std::printf("  ...\n");
}

absl::Status RunTable(const TableFlags& flags, const GlobalFlags& globals) {
  const bool to_file =
      !(flags.out.empty() && flags.out_cos.empty() && flags.out_sin.empty());
  const bool single = flags.sinusoidal != 0 || flags.layout == "complex";
  absl::Status status = CheckOutputs(flags, single);
  if (!status.ok()) return status;
  v1::BuildTableRequest request;
  const absl::StatusOr<v1::Dtype> dtype =
      ParseEnum<v1::Dtype>("--dtype", "DTYPE_", flags.dtype);
  if (!dtype.ok()) return dtype.status();
  request.set_dtype(*dtype);
  for (const std::string& path : {flags.out, flags.out_cos, flags.out_sin}) {
    // Known before the work, so said before the work.
    if (!HasExtension(path, ".npy")) continue;
    const absl::StatusOr<std::string> header = NpyHeader({*dtype, {}, {}});
    if (!header.ok()) return FileError(path, header.status());
  }
  PositionFlags positions;
  positions.ids = flags.ids;
  if (flags.ids.empty()) {
    positions.start = flags.start.value_or(0);
  } else {
    positions.start = flags.start;
  }
  absl::StatusOr<v1::Positions> built = BuildPositions(positions);
  if (!built.ok()) return built.status();
  *request.mutable_positions() = *std::move(built);
  request.set_rows(flags.rows);
  const absl::StatusOr<Session> session = Session::Open(globals);
  if (!session.ok()) return session.status();
  status = SetEncoding(flags, *session, &request);
  if (!status.ok()) return status;

  absl::StatusOr<BuildTableResult> result = absl::InternalError("not called");
  {
    const Progress progress("building the table");
    result = session->client().BuildTable(request);
  }
  if (!result.ok()) return result.status();
  std::vector<NamedTensor> tensors;
  if (result->cos) tensors.push_back({"cos", *result->cos});
  if (result->sin) tensors.push_back({"sin", *result->sin});
  if (result->table) tensors.push_back({"table", *result->table});
  status = WriteTensors(flags, tensors);
  if (!status.ok()) return status;

  nlohmann::ordered_json json;
  if (request.has_rope()) json["amplitude"] = result->amplitude;
  for (const NamedTensor& named : tensors) {
    nlohmann::ordered_json& entry = json["tensors"][named.name];
    entry = {{"dtype", DtypeName(named.tensor.dtype)},
             {"shape", named.tensor.shape}};
    if (!globals.json) {
      PrintTensor(named, to_file ? kShownRowsOfFile : kShownRows);
    } else if (!to_file) {
      const std::int64_t count = ElementCount(named.tensor.shape);
      if (count > kMaxPrintedValues) {
        return UsageError(
            absl::StrCat("--json: ", count, " values; write more than ",
                         kMaxPrintedValues, " to a file with --out"));
      }
      nlohmann::ordered_json values = nlohmann::ordered_json::array();
      for (std::int64_t i = 0; i < count; ++i) {
        values.push_back(ElementAt(named.tensor, i));
      }
      entry["values"] = std::move(values);
    }
  }
  if (globals.json) PrintJson(json);
  return absl::OkStatus();
}

}  // namespace

Command AddTable(CLI::App* app, const GlobalFlags* globals) {
  const auto flags = std::make_shared<TableFlags>();
  AddSourceFlags(app, "", &flags->source);
  app->add_option("--head-dim", flags->head_dim,
                  "Channels of a head; for a --spec without rotaryDim")
      ->type_name("N");
  CLI::Option* const rows =
      app->add_option("--rows", flags->rows, "Positions to tabulate")
          ->type_name("N");
  CLI::Option* const start =
      app->add_option("--start", flags->start, "The first (default 0)")
          ->type_name("P");
  app->add_option("--ids", flags->ids, "The positions: an .npy")
      ->type_name("FILE")
      ->excludes(rows)
      ->excludes(start);
  app->add_option("--layout", flags->layout,
                  "half, duplicated, pair_repeated or complex")
      ->type_name("NAME")
      ->capture_default_str();
  app->add_option("--dtype", flags->dtype,
                  "float32, float16, bfloat16, float64")
      ->type_name("NAME")
      ->capture_default_str();
  app->add_option("--angles", flags->angles,
                  "exact, or float32 as the frameworks multiply")
      ->type_name("NAME");
  app->add_option("--sinusoidal", flags->sinusoidal,
                  "A sinusoidal table of this width instead")
      ->type_name("DIM");
  app->add_option("--order", flags->order, "interleaved, sin_cos or cos_sin")
      ->type_name("NAME");
  app->add_option("--base", flags->base, "Of a sinusoidal table")
      ->type_name("X");
  app->add_flag("--endpoint", flags->endpoint,
                "The last frequency is 1/base (tensor2tensor, fairseq)");
  app->add_option("--out", flags->out,
                  ".safetensors with cos and sin, or .npy where the table is "
                  "one tensor; without, it is printed")
      ->type_name("FILE");
  app->add_option("--out-cos", flags->out_cos, "An .npy of the cosines")
      ->type_name("FILE");
  app->add_option("--out-sin", flags->out_sin, "An .npy of the sines")
      ->type_name("FILE");
  return [flags, globals] { return RunTable(*flags, *globals); };
}

}  // namespace posenc::cli
