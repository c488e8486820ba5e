#include "server/convert/diagnosis.h"

#include <cstdint>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/base/tensor.h"
#include "server/base/utf8.h"
#include "server/convert/fields.h"
#include "server/convert/tensor.h"

namespace posenc::server {
namespace {

using core::FieldInvalid;
using core::doctor::DoctorInput;
using core::doctor::InputKind;

// Limits for the data that the server stores and returns for a request. These
// limits are far above the sizes of a checkpoint.
constexpr std::size_t kMaxInputs = 1024;
constexpr std::size_t kMaxTexts = 4 << 20;  // bytes of all texts together
constexpr std::size_t kMaxName = 4096;      // bytes of a path or a name
constexpr std::size_t kMaxTables = 4096;    // of all inputs together
constexpr std::int64_t kMaxTableElements = 65536;
constexpr std::int64_t kMaxRowElements = 1 << 20;
constexpr std::size_t kMaxReaders = 64;
constexpr std::size_t kMaxRuntime = 128 << 10;  // bytes; as Linux's arguments

// Notes a fault of one input, with the input's index in front of the field.
using NoteFault = absl::FunctionRef<void(const absl::Status& status)>;

// The usual names of files, by their kind. The kind is known here, because the
// parser refuses unknown kinds.
constexpr absl::string_view kUsualNames[] = {
    "",           "config.json",      "params.json", "tokenizer_config.json",
    "model.gguf", "model.safetensors"};
static_assert(std::size(kUsualNames) == v1::DescriptionKind_ARRAYSIZE);

absl::Status CheckName(absl::string_view field, absl::string_view name) {
  if (name.size() <= kMaxName) return absl::OkStatus();
  return FieldInvalid(field, absl::StrCat(name.size(), " bytes; at most ",
                                          kMaxName, " are taken"));
}

// Notes a fault for each given field that a description of this kind does not
// have.
void CheckPlaces(const v1::ModelDescription& in, NoteFault note) {
  const std::string kind = v1::DescriptionKind_Name(in.kind());
  const auto check = [&](absl::string_view field, bool given, bool belongs) {
    if (!given || belongs) return;
    note(FieldInvalid(field,
                      absl::StrCat("given for ", kind, ", which has none")));
  };
  const bool gguf = in.kind() == v1::DESCRIPTION_KIND_GGUF;
  const bool tensors = in.kind() == v1::DESCRIPTION_KIND_SAFETENSORS;
  check("text", !in.text().empty(), !gguf && !tensors);
  check("gguf", !in.gguf().empty(), gguf);
  check("tables", in.tables_size() > 0, gguf || tensors);
  check("key_rows", in.key_rows() != 0, tensors);
  check("query_rows", in.has_query_rows(), gguf || tensors);
}

struct Floats {
  core::Dtype dtype = core::Dtype::kFloat32;
  core::Shape shape;
  std::vector<double> values;
};

absl::StatusOr<Floats> ReadFloats(const v1::Tensor& tensor,
                                  std::size_t dimensions, std::int64_t most) {
  ASSIGN_OR_RETURN(InputTensor read, ReadTensor(tensor));
  const core::Dtype dtype = read.view.dtype;
  if (!core::IsFloating(dtype) && !core::IsFloat8(dtype)) {
    return FieldInvalid("dtype", absl::StrCat("is ", core::DtypeName(dtype),
                                              "; must be of floats"));
  }
  const core::Shape& shape = read.view.shape;
  if (shape.size() != dimensions) {
    return FieldInvalid(
        "shape",
        absl::StrCat(core::ShapeToString(shape), "; must have ", dimensions,
                     dimensions == 1 ? " extent" : " extents"));
  }
  const auto elements =
      static_cast<std::int64_t>(read.pieces.size() / core::DtypeSize(dtype));
  if (elements > most) {
    return FieldInvalid(
        "shape", absl::StrCat(core::ShapeToString(shape), " holds ", elements,
                              " elements; at most ", most, " are read"));
  }
  read.Gather();
  const auto* const bytes = static_cast<const char*>(read.view.data);
  return Floats{dtype, shape,
                core::interpretation::DecodeFloats(
                    dtype, bytes, static_cast<std::size_t>(elements))};
}

absl::StatusOr<Floats> ReadNamed(const v1::NamedTensor& in,
                                 std::size_t dimensions, std::int64_t most) {
  RETURN_IF_ERROR(CheckName("name", in.name()));
  if (!in.has_tensor()) return core::FieldRequired("tensor", "not given");
  absl::StatusOr<Floats> floats = ReadFloats(in.tensor(), dimensions, most);
  if (!floats.ok()) return core::Prefixed("tensor", floats.status());
  return floats;
}

absl::StatusOr<core::doctor::SavedTable> ReadTable(const v1::NamedTensor& in) {
  if (in.name().empty()) return core::FieldRequired("name", "not given");
  ASSIGN_OR_RETURN(Floats floats, ReadNamed(in, 1, kMaxTableElements));
  return core::doctor::SavedTable{in.name(), floats.dtype,
                                  std::move(floats.values)};
}

absl::StatusOr<core::doctor::QueryRows> ReadRows(const v1::NamedTensor& in) {
  ASSIGN_OR_RETURN(const Floats floats, ReadNamed(in, 2, kMaxRowElements));
  core::doctor::QueryRows out;
  out.name = in.name();
  const auto columns = floats.shape[1];
  if (columns == 0) return FieldInvalid("tensor.shape", "rows lack channels");
  for (auto row = floats.values.begin(); row != floats.values.end();
       row += columns) {
    out.rows.emplace_back(row, row + columns);
  }
  return out;
}

// Checks that `name` is a GGUF tensor of frequency factors, and that it was not
// given before.
absl::Status CheckFactor(const std::string& name,
                         std::set<std::string>* names) {
  if (!core::interpretation::IsFactorTensor(name)) {
    return FieldInvalid(
        "name",
        absl::StrCat(
            "\"", name.substr(0, 80),
            "\" is no factor of a GGUF file; factors are rope_freqs.weight, "
            "rope_factors_long.weight and rope_factors_short.weight"));
  }
  if (names->insert(name).second) return absl::OkStatus();
  return FieldInvalid("name", absl::StrCat(name, " is given twice"));
}

// Returns whether the tensor's data are among the `size` bytes that were sent.
// If posenc does not read data of the tensor's type, only the start of the data
// must be among these bytes.
bool IsThere(const core::interpretation::GgufTensor& tensor,
             std::uint64_t size) {
  const auto dtype = core::interpretation::GgufDtype(tensor.type);
  if (tensor.offset > size || !dtype) return tensor.offset <= size;
  std::uint64_t elements = 1;
  for (const std::uint64_t extent : tensor.shape) elements *= extent;
  return elements <= (size - tensor.offset) / core::DtypeSize(*dtype);
}

// Reads the GGUF file of `input`. The tables of `input` become the file's
// factors.
absl::Status ReadGguf(absl::string_view bytes, const core::StopAsked& stop,
                      DoctorInput* input) {
  core::interpretation::ByteSource source =
      core::interpretation::SourceOf(bytes);
  source.read = [read = source.read, &stop](std::uint64_t offset, char* to,
                                            std::size_t n) {
    const absl::Status stopped = stop();
    return stopped.ok() ? read(offset, to, n) : stopped;
  };
  ASSIGN_OR_RETURN(core::interpretation::GgufFile file,
                   core::interpretation::ReadGguf(source));
  // If a model has several files, only the first file has the keys.
  absl::Status read_number;
  const auto shard = file.Integer("split.no", &read_number);
  if (shard && *shard > 0) return absl::OkStatus();
  std::erase_if(file.tensors,
                [&](const core::interpretation::GgufTensor& tensor) {
                  return !IsThere(tensor, bytes.size());
                });
  ASSIGN_OR_RETURN(core::interpretation::GgufRope rope,
                   core::interpretation::ReadGgufRope(file, source));
  for (core::doctor::SavedTable& table : input->tables) {
    RETURN_IF_ERROR(core::interpretation::SetFactors(
        table.name, std::move(table.values), &rope));
  }
  input->tables.clear();
  input->gguf = std::move(rope);
  return absl::OkStatus();
}

// Reads a description, except for the contents of a GGUF file.
DoctorInput ReadDescription(const v1::ModelDescription& in, NoteFault note) {
  DoctorInput out;
  out.kind = static_cast<InputKind>(in.kind());
  out.path =
      in.path().empty() ? std::string(kUsualNames[in.kind()]) : in.path();
  out.unreadable = in.unreadable();
  note(CheckName("path", in.path()));
  if (in.kind() == v1::DESCRIPTION_KIND_UNSPECIFIED) {
    note(core::FieldRequired("kind", "not given"));
    return out;
  }
  if (!out.unreadable.empty()) return out;
  CheckPlaces(in, note);
  out.text = in.text();
  if (in.key_rows() < 0) {
    note(FieldInvalid("key_rows",
                      absl::StrCat(in.key_rows(), "; must be >= 0")));
  }
  if (in.key_rows() > 0) out.key_rows = in.key_rows();
  const bool gguf = in.kind() == v1::DESCRIPTION_KIND_GGUF;
  std::set<std::string> names;
  for (int i = 0; i < in.tables_size(); ++i) {
    absl::StatusOr<core::doctor::SavedTable> table = ReadTable(in.tables(i));
    if (table.ok() && gguf) {
      const absl::Status factor = CheckFactor(table->name, &names);
      if (!factor.ok()) table = factor;
    }
    note(core::Prefixed(absl::StrCat("tables[", i, "]"), table.status()));
    if (table.ok()) out.tables.push_back(*std::move(table));
  }
  if (in.has_query_rows()) {
    absl::StatusOr<core::doctor::QueryRows> rows = ReadRows(in.query_rows());
    note(core::Prefixed("query_rows", rows.status()));
    if (rows.ok()) out.query = *std::move(rows);
  }
  return out;
}

void CheckAmounts(const v1::DiagnoseRopeRequest& request,
                  core::Faults* faults) {
  if (request.inputs_size() == 0) {
    faults->Note(core::FieldRequired("inputs", "none; give one at least"));
  }
  std::size_t texts = 0;
  int tables = 0;
  for (const v1::ModelDescription& input : request.inputs()) {
    texts += input.text().size();
    tables += input.tables_size();
  }
  const auto check = [faults](absl::string_view field, std::size_t have,
                              std::size_t most, absl::string_view of_what) {
    if (have <= most) return;
    faults->Note(FieldInvalid(
        field, absl::StrCat(have, of_what, "; at most ", most, " are taken")));
  };
  check("inputs", static_cast<std::size_t>(request.inputs_size()), kMaxInputs,
        " inputs");
  check("inputs", texts, kMaxTexts, " bytes of text");
  check("inputs", static_cast<std::size_t>(tables), kMaxTables, " tables");
  check("readers", static_cast<std::size_t>(request.readers_size()),
        kMaxReaders, " readers");
  check("runtime", request.runtime().size(), kMaxRuntime, " bytes");
}

std::string Text(absl::string_view text) {
  return Utf8(text, std::string::npos, "\xEF\xBF\xBD");
}

void WriteReport(const core::doctor::InputReport& report,
                 v1::DescriptionReport* out) {
  out->set_path(Text(report.path));
  out->set_kind(static_cast<v1::DescriptionKind>(report.kind));
  out->set_model_type(Text(report.model_type));
  out->set_content_hash(report.content_hash);
  out->set_unreadable(Text(report.unreadable));
  out->set_spec(Text(report.spec));
}

void WriteVerdict(const core::doctor::Verdict& verdict,
                  v1::ReaderVerdict* out) {
  out->set_name(verdict.name);
  out->set_says(Text(verdict.says));
  out->set_first_distance(verdict.first_distance);
  out->set_kept_at_length(verdict.kept_at_length);
  out->set_first_angle(verdict.first_angle);
  out->set_amplitude_ratio(verdict.amplitude_ratio);
  out->set_worst_pair(verdict.worst_pair);
  out->set_least_kept(verdict.least_kept);
}

void WriteFinding(const core::doctor::Finding& finding, v1::Finding* out) {
  out->set_id(finding.id);
  out->set_severity(static_cast<v1::Severity>(finding.severity));
  out->set_message(Text(finding.message));
  out->set_fix(Text(finding.fix));
  for (const std::string& path : finding.inputs) out->add_inputs(Text(path));
  for (const std::string& key : finding.keys) out->add_keys(Text(key));
  for (const std::int32_t layer :
       finding.layers.value_or(std::vector<std::int32_t>())) {
    out->add_layers(layer);
  }
  for (const core::doctor::Verdict& verdict : finding.readers) {
    WriteVerdict(verdict, out->add_readers());
  }
  for (const std::string& thread : finding.see) out->add_see(thread);
}

}  // namespace

std::vector<DoctorInput> ReadDescriptions(
    const v1::DiagnoseRopeRequest& request, const core::StopAsked& stop,
    core::Faults* faults) {
  CheckAmounts(request, faults);
  std::vector<DoctorInput> inputs;
  if (!faults->none()) return inputs;
  for (int i = 0; i < request.inputs_size(); ++i) {
    const auto note = [&](const absl::Status& status) {
      faults->Note(core::Prefixed(absl::StrCat("inputs[", i, "]"), status));
    };
    inputs.push_back(ReadDescription(request.inputs(i), note));
  }
  if (!faults->none()) return inputs;
  for (int i = 0; i < request.inputs_size(); ++i) {
    DoctorInput& input = inputs[static_cast<std::size_t>(i)];
    if (input.kind != InputKind::kGguf || !input.unreadable.empty()) continue;
    const absl::Status read = ReadGguf(request.inputs(i).gguf(), stop, &input);
    if (!read.ok()) input.unreadable = std::string(read.message());
  }
  return inputs;
}

core::doctor::DoctorOptions ReadDoctorOptions(
    const v1::DiagnoseRopeRequest& request) {
  return {.readers = ToVector(request.readers()),
          .length = Optional(request.length() != 0, request.length()),
          .runtime = request.runtime()};
}

void WriteDiagnosis(const core::doctor::Diagnosis& diagnosis,
                    v1::DiagnoseRopeResponse* response) {
  for (const core::doctor::InputReport& report : diagnosis.inputs) {
    WriteReport(report, response->add_inputs());
  }
  for (const core::doctor::Finding& finding : diagnosis.findings) {
    WriteFinding(finding, response->add_findings());
  }
  v1::FindingCounts* const summary = response->mutable_summary();
  summary->set_error(diagnosis.Count(core::doctor::Severity::kError));
  summary->set_warning(diagnosis.Count(core::doctor::Severity::kWarning));
  summary->set_note(diagnosis.Count(core::doctor::Severity::kNote));
  response->set_length(diagnosis.length);
}

}  // namespace posenc::server
