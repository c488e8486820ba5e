#include "client/tools/diagnosis/doctor_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <initializer_list>
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
namespace interpretation = core::interpretation;
using nlohmann::json;
using v1::ModelDescription;

// Limits on sizes of files. A config.json has some KiB, and core reads at most
// 1 MiB of JSON. Other files are larger, because an index of shards has an
// entry for each tensor, and Gemma 3's tokenizer_config.json has 1.2 MB of
// added tokens.
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
    RETURN_IF_ERROR(Read(0, bytes.data(), bytes.size()));
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

// Makes a tensor whose bytes are at `data`.
v1::NamedTensor Named(const std::string& name, v1::Dtype dtype,
                      std::initializer_list<std::uint64_t> shape,
                      std::string data) {
  v1::NamedTensor named;
  named.set_name(Utf8(name));
  v1::Tensor& tensor = *named.mutable_tensor();
  tensor.set_dtype(dtype);
  for (const std::uint64_t extent : shape) {
    tensor.add_shape(static_cast<std::int64_t>(extent));
  }
  tensor.set_data(std::move(data));
  return named;
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
  *input->mutable_query_rows() =
      Named(name, dtype, {height, width}, std::move(data));
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
  const auto dtype = interpretation::GgufDtype(ggml_type);
  return dtype ? static_cast<v1::Dtype>(*dtype) : v1::DTYPE_UNSPECIFIED;
}

// Reads a table of `bytes` bytes at `offset` in the file, and adds it to
// `input`.
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
  RETURN_IF_ERROR(file.Read(offset, data.data(), data.size()));
  *input->add_tables() = Named(name, dtype, {elements}, std::move(data));
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
  RETURN_IF_ERROR(file.Read(0, first, have));
  ASSIGN_OR_RETURN(const std::uint64_t size,
                   SafetensorsHeaderSize({first, have}, file.size()));
  std::string header(size, '\0');
  RETURN_IF_ERROR(file.Read(8, header.data(), header.size()));
  const std::uint64_t data = 8 + size;
  ASSIGN_OR_RETURN(const Safetensors layout,
                   ParseSafetensorsHeader(header, file.size() - data));
  bool has_key = false;
  for (const SafetensorsEntry& entry : layout.entries) {
    if (IsTable(entry.name)) {
      RETURN_IF_ERROR(ReadSavedTable(file, data, entry, input));
    } else if (IsKeyProjection(entry.name) && entry.shape.size() == 2 &&
               !has_key) {
      has_key = true;
      input->set_key_rows(entry.shape[0]);
    } else if (IsQueryProjection(entry.name) && entry.shape.size() == 2) {
      const v1::Dtype dtype = DtypeOf(entry);
      // Elements of 8 bits are too coarse to distinguish rows.
      if (wire::ElementBytes(dtype) > 1) {
        ReadRows(file, entry.name, data + entry.begin,
                 static_cast<std::uint64_t>(entry.shape[0]),
                 static_cast<std::uint64_t>(entry.shape[1]), dtype, input);
      }
    }
  }
  return absl::OkStatus();
}

// Reads the frequency factors of a GGUF file, and adds them to `input`.
absl::Status ReadFactors(const OffsetFile& file,
                         const interpretation::GgufFile& header,
                         ModelDescription* input) {
  for (const interpretation::GgufTensor& tensor : header.tensors) {
    const v1::Dtype dtype = DtypeOf(tensor.type);
    if (!interpretation::IsFactorTensor(tensor.name) ||
        dtype == v1::DTYPE_UNSPECIFIED) {
      continue;
    }
    std::uint64_t bytes = wire::ElementBytes(dtype);
    for (const std::uint64_t extent : tensor.shape) bytes *= extent;
    RETURN_IF_ERROR(
        ReadTable(file, tensor.name, dtype, tensor.offset, bytes, input));
  }
  return absl::OkStatus();
}

// The file must outlive the result.
interpretation::ByteSource BytesOf(const OffsetFile& file) {
  return {file.size(), [&file](std::uint64_t offset, char* to, std::size_t n) {
            return file.Read(offset, to, n);
          }};
}

absl::Status ReadGgufFile(const OffsetFile& file, ModelDescription* input) {
  const interpretation::ByteSource source = BytesOf(file);
  ASSIGN_OR_RETURN(const interpretation::GgufFile header,
                   interpretation::ReadGguf(source));
  input->set_gguf(interpretation::WriteGgufKeys(header));
  // If a model has several files, only the first file has the keys.
  absl::Status read_number;
  const auto shard = header.Integer("split.no", &read_number);
  if (shard && *shard > 0) return absl::OkStatus();
  // Checks the whole file, because it can have faults that its keys alone do
  // not show.
  RETURN_IF_ERROR(interpretation::ReadGgufRope(header, source).status());
  RETURN_IF_ERROR(ReadFactors(file, header, input));
  const interpretation::GgufTensor* const query =
      header.FindTensor("blk.0.attn_q.weight");
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

// Describes a GGUF file, or else a safetensors file. If the file cannot be
// read, the description has the error instead of contents.
ModelDescription ReadWeights(const std::string& path, bool is_gguf) {
  const v1::DescriptionKind kind =
      is_gguf ? v1::DESCRIPTION_KIND_GGUF : v1::DESCRIPTION_KIND_SAFETENSORS;
  ModelDescription input = Described(kind, path);
  const OffsetFile file(path);
  absl::Status status = file.status();
  if (status.ok()) {
    status = (is_gguf ? ReadGgufFile : ReadSafetensors)(file, &input);
  }
  return status.ok() ? input : Unreadable(kind, path, status.message());
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

// Returns the shards of an index that contain tables of frequencies, and the
// shards of one key projection and one query projection.
absl::StatusOr<std::set<fs::path>> ShardsOf(const fs::path& path) {
  ASSIGN_OR_RETURN(const std::string text,
                   OffsetFile(path.string()).All(kMaxIndex));
  const auto shallow = [](int depth, json::parse_event_t, json&) {
    return depth < 8;
  };
  const json index = json::parse(text, shallow, false);
  if (!index.is_object() || !index.contains("weight_map") ||
      !index["weight_map"].is_object()) {
    return absl::InvalidArgumentError(
        "not an index of shards: it has no weight_map");
  }
  std::set<fs::path> shards;
  bool has_key = false, has_query = false;
  for (const auto& [name, shard] : index["weight_map"].items()) {
    if (!shard.is_string()) {
      return absl::InvalidArgumentError("weight_map holds more than names");
    }
    const bool key = IsKeyProjection(name) && !has_key;
    const bool query = IsQueryProjection(name) && !has_query;
    if (!IsTable(name) && !key && !query) continue;
    has_key |= key;
    has_query |= query;
    const fs::path file = shard.get<std::string>();
    if (file.empty() || file.has_parent_path() || file == ".." || file == ".") {
      return absl::InvalidArgumentError(
          "weight_map names a file outside of its folder");
    }
    // A missing shard is not an error if it contains only a projection.
    if (IsTable(name) || fs::exists(path.parent_path() / file)) {
      shards.insert(path.parent_path() / file);
    }
  }
  return shards;
}

using Descriptions = std::vector<ModelDescription>;

void ReadIndex(const fs::path& path, Descriptions* inputs) {
  const auto shards = ShardsOf(path);
  if (!shards.ok()) {
    inputs->push_back(Unreadable(v1::DESCRIPTION_KIND_SAFETENSORS,
                                 path.string(), shards.status().message()));
    return;
  }
  for (const fs::path& shard : *shards) {
    inputs->push_back(ReadWeights(shard.string(), false));
  }
}

void ReadFile(const std::string& path, Descriptions* inputs) {
  if (absl::EndsWith(path, ".safetensors.index.json")) {
    ReadIndex(path, inputs);
  } else if (HasExtension(path, ".safetensors")) {
    inputs->push_back(ReadWeights(path, false));
  } else if (!HasExtension(path, ".json") && IsGguf(path)) {
    inputs->push_back(ReadWeights(path, true));
  } else {
    inputs->push_back(ReadJsonFile(path));
  }
}

constexpr char kIndex[] = "model.safetensors.index.json";
constexpr const char* kModelTexts[] = {"config.json", "params.json",
                                       "tokenizer_config.json"};

// Returns the names in a folder, in order. A subfolder with the name
// config.json is an error; other subfolders are ignored.
std::set<std::string> NamesIn(const std::string& path, std::error_code* error) {
  std::set<std::string> names;
  for (fs::directory_iterator at(path, *error), end; !*error && at != end;
       at.increment(*error)) {
    std::error_code ignored;
    const std::string name = at->path().filename().string();
    const bool is_text = std::ranges::count(kModelTexts, name) > 0;
    if (!at->is_directory(ignored) || is_text) names.insert(name);
  }
  return names;
}

void ReadFolder(const std::string& path, Descriptions* inputs) {
  const auto refuse = [&](absl::string_view why) {
    inputs->push_back(Unreadable(v1::DESCRIPTION_KIND_CONFIG, path, why));
  };
  std::error_code error;
  const std::set<std::string> names = NamesIn(path, &error);
  if (error) return refuse(absl::StrCat("cannot open: ", error.message()));
  std::vector<std::string> weights;
  for (const std::string& name : names) {
    if (HasExtension(name, ".gguf")) weights.push_back(name);
  }
  // If there is an index, it names the .safetensors files to read.
  const bool has_index = names.count(kIndex) > 0;
  if (has_index) weights.emplace_back(kIndex);
  for (const std::string& name : names) {
    if (HasExtension(name, ".safetensors") && !has_index) {
      weights.push_back(name);
    }
  }
  // Up to three JSON files of the folder are also inputs.
  if (weights.size() > kMaxInputs - 3) {
    return refuse(absl::StrCat("holds ", weights.size(),
                               " files of weights; at most ", kMaxInputs - 3,
                               " are read"));
  }
  // Prints config.json instead of "./config.json".
  const fs::path folder = fs::path(path) == "." ? "" : path;
  const std::size_t before = inputs->size();
  for (const char* name : kModelTexts) {
    if (names.count(name) == 0) continue;
    inputs->push_back(ReadJsonFile((folder / name).string()));
  }
  for (const std::string& name : weights) {
    ReadFile((folder / name).string(), inputs);
  }
  if (inputs->size() == before) {
    refuse(
        "holds no config.json, params.json, tokenizer_config.json, .gguf or "
        ".safetensors");
  }
}

}  // namespace

std::string Utf8(const std::string& text) {
  const std::string quoted =
      json(text).dump(-1, ' ', false, json::error_handler_t::replace);
  return json::parse(quoted).get<std::string>();
}

absl::StatusOr<ModelDescription> DescribePreset(const std::string& name) {
  const interpretation::Preset* const preset = interpretation::FindPreset(name);
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
  // A pipe is not opened here, because closing it would end its writer.
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  const OffsetFile file(path);
  char magic[4] = {};
  return file.status().ok() && file.size() >= sizeof(magic) &&
         file.Read(0, magic, sizeof(magic)).ok() &&
         absl::string_view(magic, sizeof(magic)) == "GGUF";
}

absl::StatusOr<interpretation::GgufRope> ReadGgufKeys(const std::string& path) {
  const OffsetFile file(path);
  RETURN_IF_ERROR(file.status());
  const interpretation::ByteSource source = BytesOf(file);
  ASSIGN_OR_RETURN(const interpretation::GgufFile header,
                   interpretation::ReadGguf(source));
  return interpretation::ReadGgufRope(header, source);
}

std::vector<ModelDescription> ReadDescriptions(
    const std::vector<std::string>& paths) {
  Descriptions inputs;
  for (const std::string& path : paths) {
    std::error_code error;
    if (fs::is_directory(path, error)) {
      ReadFolder(path, &inputs);
    } else {
      ReadFile(path, &inputs);
    }
  }
  return inputs;
}

}  // namespace posenc::cli
