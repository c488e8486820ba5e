#include "client/cli/doctor_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/file.h"
#include "client/cli/safetensors_header.h"
#include "nlohmann/json.hpp"

namespace posenc::cli {
namespace {

namespace fs = std::filesystem;
using core::DoctorInput;
using core::InputKind;
using nlohmann::json;

// config.json has some KiB; core reads at most 1 MiB of JSON. An index of
// shards has an entry for each tensor.
constexpr std::uint64_t kMaxJson = 1 << 20;
constexpr std::uint64_t kMaxIndex = 64 << 20;
constexpr std::uint64_t kMaxTableElements = 65536;

// A regular file that is read by offsets.
class OffsetFile {
 public:
  explicit OffsetFile(const std::string& path)
      : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat info {};
    if (fd_ < 0 || fstat(fd_, &info) != 0) {
      status_ = absl::ErrnoToStatus(errno, "cannot open");
    } else if (!S_ISREG(info.st_mode)) {
      status_ = absl::InvalidArgumentError("is no regular file");
    }
    size_ = static_cast<std::uint64_t>(info.st_size);
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

  // The whole file, if it has at most `most` bytes.
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
  int fd_;
  std::uint64_t size_ = 0;
  absl::Status status_;
};

std::string Fact(const absl::Status& status) {
  return std::string(status.message());
}

DoctorInput Unreadable(InputKind kind, const std::string& path,
                       const std::string& why) {
  DoctorInput input;
  input.kind = kind;
  input.path = path;
  input.unreadable = why;
  return input;
}

// Names of tables of frequencies.
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

// The leading channels of the leading rows of a matrix [rows, columns]; nullopt
// if they are not in the file. A few KiB are enough to see how rows are
// ordered.
std::optional<core::QueryRows> ReadRows(
    const OffsetFile& file, const std::string& name, std::uint64_t offset,
    std::uint64_t rows, std::uint64_t columns, core::FloatFormat format) {
  constexpr std::uint64_t kRows = 256, kColumns = 16;
  const std::uint64_t size = core::FloatSize(format);
  core::QueryRows result;
  result.name = name;
  const std::uint64_t width = std::min(columns, kColumns);
  std::string bytes(width * size, '\0');
  for (std::uint64_t r = 0; r < std::min(rows, kRows); ++r) {
    const std::uint64_t at = offset + r * columns * size;
    if (at > file.size() || bytes.size() > file.size() - at ||
        !file.Read(at, bytes.data(), bytes.size()).ok()) {
      return std::nullopt;
    }
    result.rows.push_back(core::DecodeFloats(format, bytes.data(), width));
  }
  return result;
}

std::optional<core::FloatFormat> FormatOf(const std::string& dtype) {
  if (dtype == "F32") return core::FloatFormat::kF32;
  if (dtype == "F16") return core::FloatFormat::kF16;
  if (dtype == "BF16") return core::FloatFormat::kBf16;
  if (dtype == "F64") return core::FloatFormat::kF64;
  return std::nullopt;
}

absl::Status ReadTable(const OffsetFile& file, std::uint64_t data,
                       const SafetensorsRange& range, DoctorInput* input) {
  const auto format = FormatOf(range.dtype);
  if (!format) {
    return absl::InvalidArgumentError(absl::StrCat(
        range.name, " is ", range.dtype, "; tables are F32, F16, BF16, F64"));
  }
  core::SavedTable table;
  table.name = range.name;
  table.format = *format;
  const std::uint64_t elements = range.size / core::FloatSize(*format);
  if (elements > kMaxTableElements) {
    return absl::InvalidArgumentError(
        absl::StrCat(range.name, " has ", elements, " elements; at most ",
                     kMaxTableElements, " are read"));
  }
  std::string bytes(range.size, '\0');
  const absl::Status status =
      file.Read(data + range.begin, bytes.data(), bytes.size());
  if (!status.ok()) return status;
  table.values = core::DecodeFloats(*format, bytes.data(), elements);
  input->tables.push_back(std::move(table));
  return absl::OkStatus();
}

DoctorInput ReadSafetensorsFile(const std::string& path) {
  DoctorInput input;
  input.kind = InputKind::kSafetensors;
  input.path = path;
  const OffsetFile file(path);
  const auto fail = [&](const absl::Status& status) {
    return Unreadable(InputKind::kSafetensors, path, Fact(status));
  };
  if (!file.status().ok()) return fail(file.status());
  char first[8] = {};
  const std::size_t have = std::min<std::uint64_t>(8, file.size());
  absl::Status status = file.Read(0, first, have);
  if (!status.ok()) return fail(status);
  const auto size = SafetensorsHeaderSize({first, have}, file.size());
  if (!size.ok()) return fail(size.status());
  std::string header(*size, '\0');
  status = file.Read(8, header.data(), header.size());
  if (!status.ok()) return fail(status);
  const auto layout = ParseSafetensorsHeader(header, file.size() - 8 - *size);
  if (!layout.ok()) return fail(layout.status());
  for (const SafetensorsRange& range : layout->entries) {
    if (IsTable(range.name)) {
      status = ReadTable(file, 8 + *size, range, &input);
      if (!status.ok()) return fail(status);
    } else if (IsKeyProjection(range.name) && range.shape.size() == 2 &&
               !input.key_rows) {
      input.key_rows = range.shape[0];
    } else if (IsQueryProjection(range.name) && range.shape.size() == 2) {
      if (const auto format = FormatOf(range.dtype)) {
        input.query =
            ReadRows(file, range.name, 8 + *size + range.begin,
                     static_cast<std::uint64_t>(range.shape[0]),
                     static_cast<std::uint64_t>(range.shape[1]), *format);
      }
    }
  }
  return input;
}

DoctorInput ReadGgufFile(const std::string& path) {
  const OffsetFile file(path);
  if (!file.status().ok()) {
    return Unreadable(InputKind::kGguf, path, Fact(file.status()));
  }
  const core::ByteSource source = {
      file.size(), [&file](std::uint64_t offset, char* to, std::size_t n) {
        return file.Read(offset, to, n);
      }};
  const auto header = core::ReadGguf(source);
  if (!header.ok()) {
    return Unreadable(InputKind::kGguf, path, Fact(header.status()));
  }
  DoctorInput input;
  input.kind = InputKind::kGguf;
  input.path = path;
  // Of a model in several files the first has the keys.
  const auto shard = header->Integer("split.no");
  if (shard.ok() && *shard && **shard > 0) return input;
  auto rope = core::ReadGgufRope(*header, source);
  if (!rope.ok())
    return Unreadable(InputKind::kGguf, path, Fact(rope.status()));
  input.gguf = *std::move(rope);
  const core::GgufTensor* const query =
      header->FindTensor("blk.0.attn_q.weight");
  const auto format =
      query == nullptr ? std::nullopt : core::GgufFloatFormat(query->type);
  // No model has extents of 2^32.
  if (format && query->shape.size() == 2 && query->shape[0] >> 32 == 0 &&
      query->shape[1] >> 32 == 0) {
    input.query = ReadRows(file, query->name, query->offset, query->shape[1],
                           query->shape[0], *format);
  }
  return input;
}

// What a file of JSON is: by its name, or else by its keys.
InputKind KindOfJson(const std::string& name, const std::string& text) {
  if (name == "params.json") return InputKind::kParams;
  if (name == "tokenizer_config.json") return InputKind::kTokenizer;
  if (name == "config.json") return InputKind::kConfig;
  if (!core::JsonFault(text).empty()) return InputKind::kConfig;
  const json root = json::parse(text, nullptr, false);
  if (root.contains("tokenizer_class") || root.contains("model_max_length")) {
    return InputKind::kTokenizer;
  }
  return root.contains("dim") && root.contains("n_heads") ? InputKind::kParams
                                                          : InputKind::kConfig;
}

DoctorInput ReadJsonFile(const std::string& path) {
  const OffsetFile file(path);
  const std::string name = fs::path(path).filename().string();
  auto text = file.All(kMaxJson);
  if (!text.ok()) {
    return Unreadable(KindOfJson(name, ""), path, Fact(text.status()));
  }
  DoctorInput input;
  input.kind = KindOfJson(name, *text);
  input.path = path;
  input.text = *std::move(text);
  return input;
}

// The shards that an index names for tables of frequencies, and one with a key
// projection.
std::vector<DoctorInput> ReadIndex(const fs::path& path) {
  const OffsetFile file(path.string());
  const auto text = file.All(kMaxIndex);
  const auto fail = [&](const std::string& why) {
    return std::vector<DoctorInput>{
        Unreadable(InputKind::kSafetensors, path.string(), why)};
  };
  if (!text.ok()) return fail(Fact(text.status()));
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
    // A projection alone is worth no error if its shard is not there.
    if (IsTable(name) || fs::exists(path.parent_path() / file_name)) {
      shards.insert(file_name);
    }
  }
  std::vector<DoctorInput> inputs;
  inputs.reserve(shards.size());
  for (const std::string& shard : shards) {
    inputs.push_back(
        ReadSafetensorsFile((path.parent_path() / shard).string()));
  }
  return inputs;
}

DoctorInput ReadOneFile(const std::string& path) {
  if (HasExtension(path, ".gguf")) return ReadGgufFile(path);
  if (HasExtension(path, ".safetensors")) return ReadSafetensorsFile(path);
  if (!HasExtension(path, ".json")) {
    const OffsetFile file(path);
    char magic[4] = {};
    if (file.status().ok() && file.size() >= 4 && file.Read(0, magic, 4).ok() &&
        absl::string_view(magic, 4) == "GGUF") {
      return ReadGgufFile(path);
    }
  }
  return ReadJsonFile(path);
}

constexpr char kIndex[] = "model.safetensors.index.json";

std::vector<DoctorInput> ReadFolder(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator at(path, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code ignored;
    if (!at->is_directory(ignored)) {
      names.push_back(at->path().filename().string());
    }
  }
  if (error) {
    return {Unreadable(InputKind::kConfig, path,
                       absl::StrCat("cannot open: ", error.message()))};
  }
  std::sort(names.begin(), names.end());
  const auto has = [&](const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const fs::path folder(path);
  std::vector<DoctorInput> inputs;
  for (const char* name :
       {"config.json", "params.json", "tokenizer_config.json"}) {
    if (has(name)) inputs.push_back(ReadJsonFile((folder / name).string()));
  }
  for (const std::string& name : names) {
    if (HasExtension(name, ".gguf")) {
      inputs.push_back(ReadGgufFile((folder / name).string()));
    }
  }
  if (has(kIndex)) {
    for (DoctorInput& input : ReadIndex(folder / kIndex)) {
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
    return {Unreadable(InputKind::kConfig, path,
                       "holds no config.json, params.json, "
                       "tokenizer_config.json, .gguf or .safetensors")};
  }
  return inputs;
}

}  // namespace

std::vector<DoctorInput> ReadDoctorInputs(
    const std::vector<std::string>& paths) {
  std::vector<DoctorInput> inputs;
  for (const std::string& path : paths) {
    std::error_code error;
    if (fs::is_directory(path, error)) {
      for (DoctorInput& input : ReadFolder(path)) {
        inputs.push_back(std::move(input));
      }
    } else if (absl::EndsWith(path, ".safetensors.index.json")) {
      for (DoctorInput& input : ReadIndex(path)) {
        inputs.push_back(std::move(input));
      }
    } else {
      inputs.push_back(ReadOneFile(path));
    }
  }
  return inputs;
}

}  // namespace posenc::cli
