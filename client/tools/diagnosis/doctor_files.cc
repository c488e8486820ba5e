#include "client/tools/diagnosis/doctor_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/tools/check/element.h"
#include "client/tools/files/file.h"
#include "client/tools/files/safetensors.h"
#include "client/tools/files/status.h"
#include "core/doctor/doctor.h"
#include "core/interpretation/formats/gguf_file.h"
#include "core/interpretation/formats/gguf_rope.h"
#include "core/interpretation/presets.h"
#include "nlohmann/json.hpp"
#include "posenc/wire/frame.h"

namespace posenc::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using v1::ModelDescription;

// Limits on sizes of files. A config.json has some KiB, and core reads at most
// 1 MiB of JSON. Other files are larger: an index of shards has an entry for
// each tensor, and Gemma 3's tokenizer_config.json has 1.2 MB of added tokens.
constexpr std::uint64_t kMaxJson = 1 << 20;
constexpr std::uint64_t kMaxIndex = 64 << 20;
constexpr std::uint64_t kMaxTokenizer = 64 << 20;
constexpr std::uint64_t kMaxTableElements = 65536;
// The limits of DiagnoseRope on the number of inputs and the length of paths.
constexpr std::size_t kMaxInputs = 1024, kMaxPath = 4096;

// A regular file that is read at given offsets.
class OffsetFile {
 public:
  explicit OffsetFile(const std::string& path)
      : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat info {};
    if (fd_ < 0 || fstat(fd_, &info) != 0) {
      status_ = absl::ErrnoToStatus(errno, "cannot open");
    } else if (S_ISDIR(info.st_mode)) {
      status_ = absl::InvalidArgumentError("is a directory");
    } else if (!S_ISREG(info.st_mode)) {
      status_ = absl::InvalidArgumentError("is no regular file");
    }
    size_ = static_cast<std::uint64_t>(info.st_size);
    if (status_.ok() && IsLfsPointer()) {
      status_ = absl::InvalidArgumentError(
          "is a pointer of Git LFS, not the file; `git lfs pull` brings it");
    }
  }
  OffsetFile(const OffsetFile&) = delete;
  OffsetFile& operator=(const OffsetFile&) = delete;
  ~OffsetFile() {
    if (fd_ >= 0) close(fd_);
  }

  const absl::Status& status() const { return status_; }
  std::uint64_t size() const { return size_; }

  absl::Status Read(std::uint64_t offset, char* to, std::size_t n) const {
    while (n > 0) {
      const ssize_t got = pread(fd_, to, n, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return absl::ErrnoToStatus(errno, "cannot read");
      if (got == 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("ends at byte ", offset, " while it is read"));
      }
      to += got;
      offset += static_cast<std::uint64_t>(got);
      n -= static_cast<std::size_t>(got);
    }
    return absl::OkStatus();
  }

  // Reads the whole file, if it has at most `most` bytes.
  absl::StatusOr<std::string> All(std::uint64_t most) const {
    if (!status_.ok()) return status_;
    if (size_ > most) {
      return absl::InvalidArgumentError(
          absl::StrCat(size_, " bytes; at most ", most, " are read"));
    }
    std::string bytes(size_, '\0');
    const absl::Status status = Read(0, bytes.data(), bytes.size());
    if (!status.ok()) return status;
    return bytes;
  }

 private:
  // Returns true for a pointer of Git LFS: a clone without LFS has such
  // pointers instead of large files.
  bool IsLfsPointer() const {
    constexpr absl::string_view kBegin = "version https://git-lfs";
    constexpr std::uint64_t kLongest = 1024;  // of a pointer file
    char begin[kBegin.size()];
    return size_ >= kBegin.size() && size_ <= kLongest &&
           Read(0, begin, kBegin.size()).ok() &&
           absl::string_view(begin, kBegin.size()) == kBegin;
  }

  int fd_;
  std::uint64_t size_ = 0;
  absl::Status status_;
};

ModelDescription Described(v1::DescriptionKind kind, const std::string& path) {
  ModelDescription input;
  input.set_kind(kind);
  input.set_path(Utf8(path.size() > kMaxPath
                          ? absl::StrCat(path.substr(0, kMaxPath / 2), "...")
                          : path));
  return input;
}

ModelDescription Unreadable(v1::DescriptionKind kind, const std::string& path,
                            absl::string_view why) {
  ModelDescription input = Described(kind, path);
  input.set_unreadable(Utf8(std::string(why)));
  return input;
}

// Describes a file of weights with the function `read`. If `read` fails, the
// result is unreadable and has the error as its reason.
ModelDescription ReadWeights(v1::DescriptionKind kind, const std::string& path,
                             absl::Status (*read)(const OffsetFile&,
                                                  ModelDescription*)) {
  ModelDescription input = Described(kind, path);
  const OffsetFile file(path);
  absl::Status status = file.status();
  if (status.ok()) status = read(file, &input);
  return status.ok() ? input : Unreadable(kind, path, status.message());
}

// Returns true for names of tables of frequencies.
bool IsTable(absl::string_view name) {
  for (const absl::string_view end :
       {"rotary_emb.inv_freq", "rotary_embeddings.inv_freq",
        "rotary_pos_emb.inv_freq"}) {
    if (absl::EndsWith(name, end)) return true;
  }
  return name == "rope.freqs" || absl::EndsWith(name, ".rope.freqs");
}

bool IsKeyProjection(absl::string_view name) {
  return absl::EndsWith(name, "self_attn.k_proj.weight");
}

bool IsQueryProjection(absl::string_view name) {
  return absl::EndsWith(name, "layers.0.self_attn.q_proj.weight");
}

// Adds the leading channels of the leading rows of a matrix [rows, columns], if
// they are in the file. A few KiB are enough to see how rows are ordered.
void ReadRows(const OffsetFile& file, const std::string& name,
              std::uint64_t offset, std::uint64_t rows, std::uint64_t columns,
              v1::Dtype dtype, ModelDescription* input) {
  constexpr std::uint64_t kRows = 256, kColumns = 16;
  const std::uint64_t size = wire::ElementBytes(dtype);
  const std::uint64_t height = std::min(rows, kRows);
  const std::uint64_t width = std::min(columns, kColumns);
  if (width == 0) return;
  std::string data;
  std::string bytes(width * size, '\0');
  for (std::uint64_t r = 0; r < height; ++r) {
    const std::uint64_t at = offset + r * columns * size;
    if (at > file.size() || bytes.size() > file.size() - at ||
        !file.Read(at, bytes.data(), bytes.size()).ok()) {
      return;
    }
    data += bytes;
  }
  input->mutable_query_rows()->set_name(Utf8(name));
  v1::Tensor& tensor = *input->mutable_query_rows()->mutable_tensor();
  tensor.set_dtype(dtype);
  tensor.add_shape(static_cast<std::int64_t>(height));
  tensor.add_shape(static_cast<std::int64_t>(width));
  tensor.set_data(std::move(data));
}

// Returns the dtype of the entry if it is a floating point dtype, else
// UNSPECIFIED.
v1::Dtype DtypeOf(const SafetensorsEntry& entry) {
  const absl::StatusOr<TensorView> tensor = AsTensor(entry);
  return tensor.ok() && check::SignificandBits(tensor->dtype) > 0
             ? tensor->dtype
             : v1::DTYPE_UNSPECIFIED;
}

// Returns the dtype for ggml's type number if it is a floating point dtype,
// else UNSPECIFIED.
v1::Dtype DtypeOf(std::uint32_t ggml_type) {
  const auto dtype = core::interpretation::GgufDtype(ggml_type);
  return dtype ? static_cast<v1::Dtype>(*dtype) : v1::DTYPE_UNSPECIFIED;
}

// Adds the table of `bytes` bytes from `offset` on.
absl::Status ReadTable(const OffsetFile& file, const std::string& name,
                       v1::Dtype dtype, std::uint64_t offset,
                       std::uint64_t bytes, ModelDescription* input) {
  const std::uint64_t elements = bytes / wire::ElementBytes(dtype);
  if (elements > kMaxTableElements) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has ", elements, " elements; at most ",
                     kMaxTableElements, " are read"));
  }
  std::string data(bytes, '\0');
  const absl::Status status = file.Read(offset, data.data(), data.size());
  if (!status.ok()) return status;
  v1::NamedTensor& table = *input->add_tables();
  table.set_name(Utf8(name));
  table.mutable_tensor()->set_dtype(dtype);
  table.mutable_tensor()->add_shape(static_cast<std::int64_t>(elements));
  table.mutable_tensor()->set_data(std::move(data));
  return absl::OkStatus();
}

absl::Status ReadSavedTable(const OffsetFile& file, std::uint64_t data,
                            const SafetensorsEntry& entry,
                            ModelDescription* input) {
  const v1::Dtype dtype = DtypeOf(entry);
  if (dtype == v1::DTYPE_UNSPECIFIED) {
    return absl::InvalidArgumentError(
        absl::StrCat(entry.name, " is ", entry.dtype,
                     "; tables are F64, F32, F16, BF16, F8_E4M3, F8_E5M2"));
  }
  return ReadTable(file, entry.name, dtype, data + entry.begin,
                   entry.bytes.size(), input);
}

absl::Status ReadSafetensors(const OffsetFile& file, ModelDescription* input) {
  char first[8] = {};
  const std::size_t have = std::min<std::uint64_t>(8, file.size());
  absl::Status status = file.Read(0, first, have);
  if (!status.ok()) return status;
  const auto size = SafetensorsHeaderSize({first, have}, file.size());
  if (!size.ok()) return size.status();
  std::string header(*size, '\0');
  status = file.Read(8, header.data(), header.size());
  if (!status.ok()) return status;
  const auto layout = ParseSafetensorsHeader(header, file.size() - 8 - *size);
  if (!layout.ok()) return layout.status();
  bool has_key = false;
  for (const SafetensorsEntry& entry : layout->entries) {
    if (IsTable(entry.name)) {
      status = ReadSavedTable(file, 8 + *size, entry, input);
      if (!status.ok()) return status;
    } else if (IsKeyProjection(entry.name) && entry.shape.size() == 2 &&
               !has_key) {
      has_key = true;
      input->set_key_rows(entry.shape[0]);
    } else if (IsQueryProjection(entry.name) && entry.shape.size() == 2) {
      const v1::Dtype dtype = DtypeOf(entry);
      // Elements of 8 bits are too coarse to distinguish rows.
      if (wire::ElementBytes(dtype) > 1) {
        ReadRows(file, entry.name, 8 + *size + entry.begin,
                 static_cast<std::uint64_t>(entry.shape[0]),
                 static_cast<std::uint64_t>(entry.shape[1]), dtype, input);
      }
    }
  }
  return absl::OkStatus();
}

ModelDescription ReadSafetensorsFile(const std::string& path) {
  return ReadWeights(v1::DESCRIPTION_KIND_SAFETENSORS, path, ReadSafetensors);
}

// Adds the file's factors, which change the frequencies.
absl::Status ReadFactors(const OffsetFile& file,
                         const core::interpretation::GgufFile& header,
                         ModelDescription* input) {
  for (const core::interpretation::GgufTensor& tensor : header.tensors) {
    const v1::Dtype dtype = DtypeOf(tensor.type);
    if (!core::interpretation::IsFactorTensor(tensor.name) ||
        dtype == v1::DTYPE_UNSPECIFIED) {
      continue;
    }
    std::uint64_t bytes = wire::ElementBytes(dtype);
    for (const std::uint64_t extent : tensor.shape) bytes *= extent;
    const absl::Status status =
        ReadTable(file, tensor.name, dtype, tensor.offset, bytes, input);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// The file must outlive the result.
core::interpretation::ByteSource BytesOf(const OffsetFile& file) {
  return {file.size(), [&file](std::uint64_t offset, char* to, std::size_t n) {
            return file.Read(offset, to, n);
          }};
}

absl::Status ReadGgufInto(const OffsetFile& file, ModelDescription* input) {
  const core::interpretation::ByteSource source = BytesOf(file);
  const auto header = core::interpretation::ReadGguf(source);
  if (!header.ok()) return header.status();
  input->set_gguf(core::interpretation::WriteGgufKeys(*header));
  // If a model has several files, only the first file has the keys.
  absl::Status read_number;
  const auto shard = header->Integer("split.no", &read_number);
  if (shard && *shard > 0) return absl::OkStatus();
  // Checks the whole file, because it can have faults that its keys alone do
  // not show.
  const absl::Status good =
      core::interpretation::ReadGgufRope(*header, source).status();
  if (!good.ok()) return good;
  const absl::Status factors = ReadFactors(file, *header, input);
  if (!factors.ok()) return factors;
  const core::interpretation::GgufTensor* const query =
      header->FindTensor("blk.0.attn_q.weight");
  const v1::Dtype dtype =
      query == nullptr ? v1::DTYPE_UNSPECIFIED : DtypeOf(query->type);
  // Extents of 2^32 and more occur in no model.
  if (dtype != v1::DTYPE_UNSPECIFIED && query->shape.size() == 2 &&
      query->shape[0] >> 32 == 0 && query->shape[1] >> 32 == 0) {
    ReadRows(file, query->name, query->offset, query->shape[1], query->shape[0],
             dtype, input);
  }
  return absl::OkStatus();
}

ModelDescription ReadGgufFile(const std::string& path) {
  return ReadWeights(v1::DESCRIPTION_KIND_GGUF, path, ReadGgufInto);
}

// Returns the kind of a JSON file, by its name, or else by its keys.
v1::DescriptionKind KindOfJson(const std::string& name,
                               const std::string& text) {
  if (name == "params.json") return v1::DESCRIPTION_KIND_PARAMS;
  if (name == "tokenizer_config.json") return v1::DESCRIPTION_KIND_TOKENIZER;
  if (name == "config.json") return v1::DESCRIPTION_KIND_CONFIG;
  if (!core::doctor::JsonFault(text).empty())
    return v1::DESCRIPTION_KIND_CONFIG;
  const json root = json::parse(text, nullptr, false);
  // A model's configuration may repeat keys of the tokenizer's configuration.
  const bool is_model = root.contains("model_type") ||
                        root.contains("architectures") ||
                        root.contains("hidden_size");
  if (!is_model &&
      (root.contains("tokenizer_class") || root.contains("model_max_length"))) {
    return v1::DESCRIPTION_KIND_TOKENIZER;
  }
  return root.contains("dim") && root.contains("n_heads")
             ? v1::DESCRIPTION_KIND_PARAMS
             : v1::DESCRIPTION_KIND_CONFIG;
}

// Returns a tokenizer's configuration with only model_max_length, the key that
// is compared. Nested values are dropped, because the text may be nested more
// deeply than the stack allows.
absl::StatusOr<std::string> TokenizerLength(const std::string& text) {
  const auto keep = [](int depth, json::parse_event_t event, json& parsed) {
    if (depth > 1) return false;
    return event != json::parse_event_t::key || depth != 1 ||
           parsed == "model_max_length";
  };
  const json root = json::parse(text, keep, false);
  if (!root.is_object()) return absl::InvalidArgumentError("not JSON");
  return root.dump();
}

ModelDescription ReadJsonFile(const std::string& path) {
  const OffsetFile file(path);
  const std::string name = fs::path(path).filename().string();
  const bool tokenizer = name == "tokenizer_config.json";
  auto text = file.All(tokenizer ? kMaxTokenizer : kMaxJson);
  if (text.ok() && text->size() > kMaxJson) text = TokenizerLength(*text);
  if (!text.ok()) {
    return Unreadable(KindOfJson(name, ""), path, text.status().message());
  }
  const v1::DescriptionKind kind = KindOfJson(name, *text);
  // A text that is not UTF-8 is not JSON, and cannot be sent.
  if (Utf8(*text) != *text) {
    return Unreadable(kind, path, core::doctor::JsonFault(*text));
  }
  ModelDescription input = Described(kind, path);
  input.set_text(*std::move(text));
  return input;
}

// Reads the shards of an index that contain tables of frequencies, and the
// shards of one key projection and one query projection.
std::vector<ModelDescription> ReadIndex(const fs::path& path) {
  const OffsetFile file(path.string());
  const auto text = file.All(kMaxIndex);
  const auto fail = [&](absl::string_view why) {
    return std::vector<ModelDescription>{
        Unreadable(v1::DESCRIPTION_KIND_SAFETENSORS, path.string(), why)};
  };
  if (!text.ok()) return fail(text.status().message());
  int deepest = 0;
  const auto shallow = [&](int depth, json::parse_event_t, json&) {
    deepest = std::max(deepest, depth);
    return depth < 8;
  };
  const json index = json::parse(*text, shallow, false);
  if (index.is_discarded() || !index.is_object() ||
      !index.contains("weight_map") || !index["weight_map"].is_object()) {
    return fail("not an index of shards: it has no weight_map");
  }
  std::set<std::string> shards;
  bool has_key = false, has_query = false;
  for (const auto& [name, shard] : index["weight_map"].items()) {
    if (!shard.is_string()) return fail("weight_map holds more than names");
    const bool key = IsKeyProjection(name) && !has_key;
    const bool query = IsQueryProjection(name) && !has_query;
    if (!IsTable(name) && !key && !query) continue;
    has_key |= key;
    has_query |= query;
    const auto file_name = shard.get<std::string>();
    if (file_name.empty() || fs::path(file_name).has_parent_path() ||
        file_name == ".." || file_name == ".") {
      return fail("weight_map names a file outside of its folder");
    }
    // A missing shard is not an error if it contains only a projection.
    if (IsTable(name) || fs::exists(path.parent_path() / file_name)) {
      shards.insert(file_name);
    }
  }
  std::vector<ModelDescription> inputs;
  inputs.reserve(shards.size());
  for (const std::string& shard : shards) {
    inputs.push_back(
        ReadSafetensorsFile((path.parent_path() / shard).string()));
  }
  return inputs;
}

ModelDescription ReadOneFile(const std::string& path) {
  if (HasExtension(path, ".gguf")) return ReadGgufFile(path);
  if (HasExtension(path, ".safetensors")) return ReadSafetensorsFile(path);
  return !HasExtension(path, ".json") && IsGguf(path) ? ReadGgufFile(path)
                                                      : ReadJsonFile(path);
}

constexpr char kIndex[] = "model.safetensors.index.json";
constexpr const char* kModelTexts[] = {"config.json", "params.json",
                                       "tokenizer_config.json"};

bool IsModelText(const std::string& name) {
  return std::find(std::begin(kModelTexts), std::end(kModelTexts), name) !=
         std::end(kModelTexts);
}

std::vector<ModelDescription> ReadFolder(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator at(path, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code ignored;
    const std::string name = at->path().filename().string();
    // A folder with the name config.json is an error; other folders are
    // ignored.
    if (!at->is_directory(ignored) || IsModelText(name)) names.push_back(name);
  }
  if (error) {
    return {Unreadable(v1::DESCRIPTION_KIND_CONFIG, path,
                       absl::StrCat("cannot open: ", error.message()))};
  }
  std::sort(names.begin(), names.end());
  const auto has = [&](const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  // If there is an index, it names the .safetensors files to read.
  const auto models =
      std::count_if(names.begin(), names.end(), [&](const std::string& name) {
        return HasExtension(name, ".gguf") ||
               (!has(kIndex) && HasExtension(name, ".safetensors"));
      });
  // The folder can also have three JSON files, which are inputs, too.
  if (models > static_cast<std::ptrdiff_t>(kMaxInputs) - 3) {
    return {
        Unreadable(v1::DESCRIPTION_KIND_CONFIG, path,
                   absl::StrCat("holds ", models, " files of weights; at most ",
                                kMaxInputs - 3, " are read"))};
  }
  // Prints config.json instead of "./config.json".
  const fs::path folder = fs::path(path) == "." ? "" : path;
  std::vector<ModelDescription> inputs;
  for (const char* name : kModelTexts) {
    if (has(name)) inputs.push_back(ReadJsonFile((folder / name).string()));
  }
  for (const std::string& name : names) {
    if (HasExtension(name, ".gguf")) {
      inputs.push_back(ReadGgufFile((folder / name).string()));
    }
  }
  if (has(kIndex)) {
    for (ModelDescription& input : ReadIndex(folder / kIndex)) {
      inputs.push_back(std::move(input));
    }
  } else {
    for (const std::string& name : names) {
      if (HasExtension(name, ".safetensors")) {
        inputs.push_back(ReadSafetensorsFile((folder / name).string()));
      }
    }
  }
  if (inputs.empty()) {
    return {Unreadable(v1::DESCRIPTION_KIND_CONFIG, path,
                       "holds no config.json, params.json, "
                       "tokenizer_config.json, .gguf or .safetensors")};
  }
  return inputs;
}

}  // namespace

std::string Utf8(const std::string& text) {
  const std::string quoted =
      json(text).dump(-1, ' ', false, json::error_handler_t::replace);
  return json::parse(quoted).get<std::string>();
}

absl::StatusOr<ModelDescription> DescribePreset(const std::string& name) {
  const core::interpretation::Preset* const preset =
      core::interpretation::FindPreset(name);
  if (preset == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("'", name, "' is no preset; posenc info lists them"));
  }
  ModelDescription input = Described(v1::DESCRIPTION_KIND_CONFIG, name);
  input.set_text(std::string(preset->config_json));
  return input;
}

absl::StatusOr<std::string> ReadConfigText(const std::string& path) {
  constexpr std::size_t kMost = 64 << 20;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    return ReadConfigText((fs::path(path) / "config.json").string());
  }
  const absl::StatusOr<FileBytes> file = FileBytes::ReadAtMost(kMost, path);
  if (!file.ok()) return file.status();
  return std::string(file->bytes().begin(), file->bytes().end());
}

bool IsGguf(const std::string& path) {
  if (HasExtension(path, ".gguf")) return true;
  // Reading a pipe would consume its bytes.
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  char magic[4] = {};
  std::ifstream file(path, std::ios::binary);
  return file.read(magic, sizeof(magic)) &&
         absl::string_view(magic, sizeof(magic)) == "GGUF";
}

absl::StatusOr<core::interpretation::GgufRope> ReadGgufKeys(
    const std::string& path) {
  const OffsetFile file(path);
  if (!file.status().ok()) return file.status();
  const core::interpretation::ByteSource source = BytesOf(file);
  const auto header = core::interpretation::ReadGguf(source);
  if (!header.ok()) return header.status();
  return core::interpretation::ReadGgufRope(*header, source);
}

std::vector<ModelDescription> ReadDescriptions(
    const std::vector<std::string>& paths) {
  std::vector<ModelDescription> inputs;
  for (const std::string& path : paths) {
    std::error_code error;
    if (fs::is_directory(path, error)) {
      for (ModelDescription& input : ReadFolder(path)) {
        inputs.push_back(std::move(input));
      }
    } else if (absl::EndsWith(path, ".safetensors.index.json")) {
      for (ModelDescription& input : ReadIndex(path)) {
        inputs.push_back(std::move(input));
      }
    } else {
      inputs.push_back(ReadOneFile(path));
    }
  }
  return inputs;
}

}  // namespace posenc::cli
