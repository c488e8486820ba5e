// `posenc table`: cosines and sines of a rotary encoding, or rows of an
// absolute encoding, printed or written to files.

#include <cstdio>
#include <memory>

#include "client/tools/arguments/connection.h"
#include "client/tools/arguments/enum_flags.h"
#include "client/tools/cli/commands.h"
#include "client/tools/files/npy.h"
#include "client/tools/files/print.h"
#include "client/tools/files/safetensors.h"
#include "client/tools/files/status.h"
#include "client/tools/files/tensor_file.h"

namespace posenc::cli {
namespace {

// An encoding, rotary or absolute, and the positions of the rows. The positions
// are `rows` numbers from --start on, unless `positions` has another form.
struct TableFlags {
  SourceFlags source;
  FieldFlags absolute{v1::AbsoluteEncoding::descriptor()};
  FieldFlags positions{v1::Positions::descriptor()};
  std::int64_t rows = 0;
  v1::TableLayout layout = v1::TABLE_LAYOUT_HALF;
  v1::Dtype dtype = v1::DTYPE_FLOAT32;
  v1::AnglePrecision angles = v1::ANGLE_PRECISION_UNSPECIFIED;
  bool for_keys = false;
  std::string out;
  std::string out_cos;
  std::string out_sin;
};

// Names of tensors ("cos", "sin" or "table") and the tensors.
using Tensors = std::vector<std::pair<std::string, TensorView>>;

// Sets the request's encoding. A detail of a model can only be changed in the
// model's complete specification, which this function gets from the server.
absl::Status SetEncoding(const TableFlags& flags, const Connection& connection,
                         v1::BuildTableRequest* request) {
  if (!flags.absolute.Empty()) {
    if (!flags.source.Empty() ||
        flags.angles != v1::ANGLE_PRECISION_UNSPECIFIED || flags.for_keys) {
      return UsageError(
          "an absolute encoding excludes --preset, --config, --spec, --angles "
          "and --for-keys");
    }
    return flags.absolute.Read(request->mutable_absolute());
  }
  if (flags.source.Empty()) {
    return NoEncoding();
  }
  ASSIGN_OR_RETURN(v1::RopeSource source, BuildSource(flags.source));
  const bool resolve =
      !source.has_spec()
          ? flags.angles != v1::ANGLE_PRECISION_UNSPECIFIED
          : source.spec().rotary_dim() == 0 && source.head_dim() != 0;
  if (resolve) {
    // Requests the model's complete specification, to change one field
    // (--angles), or to set the rotary_dim that --head-dim implies.
    v1::ResolveRopeRequest question;
    *question.mutable_rope() = source;
    ASSIGN_OR_RETURN(auto answer, connection.client().ResolveRope(question));
    source.clear_layer();
    source.clear_profile();
    source.clear_profile_version();
    source.clear_part();
    *source.mutable_spec() = answer.spec();
  }
  if (flags.angles != v1::ANGLE_PRECISION_UNSPECIFIED) {
    source.mutable_spec()->set_angle_precision(flags.angles);
  }
  request->set_layout(flags.layout);
  request->set_for_keys(flags.for_keys);
  *request->mutable_rope() = std::move(source);
  return absl::OkStatus();
}

// Returns an error with exit code 2 if the outputs cannot hold the table. If
// `single` is true, the table is one tensor, not a pair of cos and sin.
absl::Status CheckOutputs(const TableFlags& flags, bool single) {
  RETURN_IF_ERROR(CheckOut(flags.out));
  if (HasExtension(flags.out, ".npy") && !single) {
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
    if (!path.empty() && !IsNpyOutput(path)) {
      return UsageError("--out-cos, --out-sin: an .npy file is needed");
    }
  }
  return absl::OkStatus();
}

// Writes each tensor to its .npy file, if flags name one. Writes all tensors to
// --out if it is a .safetensors file, or if it is standard output and there is
// more than one tensor.
absl::Status WriteTensors(const TableFlags& flags, const Tensors& tensors) {
  Safetensors file;
  for (const auto& [name, tensor] : tensors) {
    const std::string& path = name == "cos"   ? flags.out_cos
                              : name == "sin" ? flags.out_sin
                                              : flags.out;
    if (IsNpyOutput(path)) {
      RETURN_IF_ERROR(WriteNpy(path, tensor));
    }
    ASSIGN_OR_RETURN(file.entries.emplace_back(),
                     InFile(flags.out, FromTensor(name, tensor)));
  }
  if (!HasExtension(flags.out, ".safetensors") &&
      (tensors.size() == 1 || !IsStandardStream(flags.out))) {
    return absl::OkStatus();
  }
  return WriteSafetensors(flags.out, file);
}

// A grid defines its rows. Other tables start at position 0, unless flags give
// other positions.
absl::Status SetPositions(const TableFlags& flags,
                          v1::BuildTableRequest* request) {
  if (flags.positions.Empty()) {
    if (!flags.absolute.Given("--sincos-grid")) {
      request->mutable_positions()->set_start(0);
    }
    return absl::OkStatus();
  }
  if (!flags.positions.Given("--start") && flags.rows != 0) {
    return UsageError("--rows: belongs to --start; positions give the rows");
  }
  ASSIGN_OR_RETURN(*request->mutable_positions(),
                   BuildPositions(flags.positions));
  return absl::OkStatus();
}

absl::Status RunTable(const TableFlags& flags, const GlobalFlags& globals) {
  const bool to_file =
      !(flags.out.empty() && flags.out_cos.empty() && flags.out_sin.empty());
  const bool single =
      !flags.absolute.Empty() || flags.layout == v1::TABLE_LAYOUT_COMPLEX;
  RETURN_IF_ERROR(CheckOutputs(flags, single));
  v1::BuildTableRequest request;
  request.set_dtype(flags.dtype);
  for (const std::string& path : {flags.out, flags.out_cos, flags.out_sin}) {
    // Refuses bfloat16 before the call, because an .npy file cannot hold it.
    const bool pair = path == flags.out && !single;
    if (pair || !IsNpyOutput(path)) continue;
    RETURN_IF_ERROR(InFile(path, NpyHeader({flags.dtype, {}, {}})).status());
  }
  RETURN_IF_ERROR(SetPositions(flags, &request));
  request.set_rows(flags.rows);
  ASSIGN_OR_RETURN(const Connection connection, Connection::Open(globals));
  RETURN_IF_ERROR(SetEncoding(flags, connection, &request));

  ASSIGN_OR_RETURN(const auto result, connection.client().BuildTable(request));
  Tensors tensors;
  if (result.cos) tensors.emplace_back("cos", *result.cos);
  if (result.sin) tensors.emplace_back("sin", *result.sin);
  if (result.table) tensors.emplace_back("table", *result.table);
  RETURN_IF_ERROR(WriteTensors(flags, tensors));

  nlohmann::ordered_json json;
  if (request.has_rope()) json["amplitude"] = result.amplitude;
  for (const auto& [name, tensor] : tensors) {
    nlohmann::ordered_json& entry = json["tensors"][name];
    entry = TensorJson(tensor);
    if (!globals.json) {
      PrintTensor(name, tensor, to_file ? kShownRowsOfFile : kShownRows);
    } else if (!to_file) {
      RETURN_IF_ERROR(AddValues(tensor, &entry));
    }
  }
  if (globals.json) PrintJson(json);
  return absl::OkStatus();
}

}  // namespace

Command AddTable(CLI::App* app, const GlobalFlags* globals) {
  const auto flags = std::make_shared<TableFlags>();
  AddSourceFlags(app, "", "Encoding", &flags->source);
  AddAbsoluteFlags(app, &flags->absolute);
  AddFlag(app, "--rows", &flags->rows, "N",
          "Positions to tabulate, from --start");
  AddPositionFlags(app, "", "Positions (default --start 0)", &flags->positions);
  AddEnumFlag(app, "--layout", &flags->layout,
              "half, duplicated, pair_repeated or complex");
  AddEnumFlag(app, "--dtype", &flags->dtype,
              "float32, float16, bfloat16, float64");
  AddEnumFlag(app, "--angles", &flags->angles,
              "exact, or float32 products as in frameworks");
  AddFlag(app, "--for-keys", &flags->for_keys, "",
          "Use the keys' xPos factor, not the queries'");
  AddFlag(app, "--out", &flags->out, "FILE",
          ".safetensors with cos and sin, or .npy if the table is one tensor "
          "(default: prints the table)");
  AddFlag(app, "--out-cos", &flags->out_cos, "FILE", "An .npy of the cosines");
  AddFlag(app, "--out-sin", &flags->out_sin, "FILE", "An .npy of the sines");
  return [flags, globals] { return RunTable(*flags, *globals); };
}

}  // namespace posenc::cli
