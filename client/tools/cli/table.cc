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

// Returns an error if --out cannot hold the table. If `single` is true, the
// table is one tensor, not a pair of cos and sin.
absl::Status CheckOutput(const TableFlags& flags, bool single) {
  RETURN_IF_ERROR(CheckOut(flags.out));
  if (!single) {
    return HasExtension(flags.out, ".npy")
               ? UsageError(
                     "--out: an .npy file holds one tensor, not cos and sin; "
                     "choose .safetensors, or --layout complex")
               : absl::OkStatus();
  }
  // Refuses bfloat16 before the call, because an .npy file cannot hold it.
  return IsNpyOutput(flags.out)
             ? InFile(flags.out, NpyHeader({flags.dtype, {}, {}})).status()
             : absl::OkStatus();
}

absl::Status WriteTensors(const std::string& path, const Tensors& tensors) {
  if (tensors.size() == 1) {
    return WriteTensor(path, tensors[0].first, tensors[0].second);
  }
  Safetensors file;
  for (const auto& [name, tensor] : tensors) {
    ASSIGN_OR_RETURN(file.entries.emplace_back(),
                     InFile(path, FromTensor(name, tensor)));
  }
  return WriteSafetensors(path, file);
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
  const bool to_file = !flags.out.empty();
  const bool single =
      !flags.absolute.Empty() || flags.layout == v1::TABLE_LAYOUT_COMPLEX;
  RETURN_IF_ERROR(CheckOutput(flags, single));
  v1::BuildTableRequest request;
  request.set_dtype(flags.dtype);
  RETURN_IF_ERROR(SetPositions(flags, &request));
  request.set_rows(flags.rows);
  ASSIGN_OR_RETURN(const Connection connection, Connection::Open(globals));
  RETURN_IF_ERROR(SetEncoding(flags, connection, &request));

  ASSIGN_OR_RETURN(const auto result, connection.client().BuildTable(request));
  Tensors tensors;
  if (result.cos) tensors.emplace_back("cos", *result.cos);
  if (result.sin) tensors.emplace_back("sin", *result.sin);
  if (result.table) tensors.emplace_back("table", *result.table);
  if (to_file) RETURN_IF_ERROR(WriteTensors(flags.out, tensors));

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
  return [flags, globals] { return RunTable(*flags, *globals); };
}

}  // namespace posenc::cli
