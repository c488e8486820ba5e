#include "client/tools/files/safetensors.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "client/tools/check/element.h"
#include "client/tools/files/file.h"
#include "client/tools/files/status.h"

namespace posenc::cli {
namespace {

using Json = nlohmann::json;

// Levels of nesting in a well-formed header: the header, an entry, its shape.
// Deeper nesting could exhaust the parser's stack.
constexpr std::size_t kMaxDepth = 3;

struct NamedDtype {
  const char* name;
  std::size_t size;
  v1::Dtype dtype;  // UNSPECIFIED: commands only copy the tensor
};
constexpr NamedDtype kDtypes[] = {{"F64", 8, v1::DTYPE_FLOAT64},
                                  {"F32", 4, v1::DTYPE_FLOAT32},
                                  {"F16", 2, v1::DTYPE_FLOAT16},
                                  {"BF16", 2, v1::DTYPE_BFLOAT16},
                                  {"I64", 8, v1::DTYPE_INT64},
                                  {"I32", 4, v1::DTYPE_INT32},
                                  {"I16", 2, v1::DTYPE_UNSPECIFIED},
                                  {"I8", 1, v1::DTYPE_INT8},
                                  {"U64", 8, v1::DTYPE_UNSPECIFIED},
                                  {"U32", 4, v1::DTYPE_UNSPECIFIED},
                                  {"U16", 2, v1::DTYPE_UNSPECIFIED},
                                  {"U8", 1, v1::DTYPE_INT8},  // bytes of blocks
                                  {"BOOL", 1, v1::DTYPE_UNSPECIFIED},
                                  {"F8_E4M3", 1, v1::DTYPE_FLOAT8_E4M3FN},
                                  {"F8_E5M2", 1, v1::DTYPE_FLOAT8_E5M2}};

// Returns the view for the bytes of a tensor if only the header was read: the
// pointer is null, but the size is right.
absl::Span<const char> Unread(std::uint64_t size) {
  return {static_cast<const char*>(nullptr), static_cast<std::size_t>(size)};
}

// Limit on the size of a header, from the reference implementation. Headers of
// models are shorter, and a malicious header must not fill the memory.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

absl::Status NotSafetensors(absl::string_view fact) {
  return absl::InvalidArgumentError(
      absl::StrCat("not a .safetensors file: ", fact));
}

absl::Status MalformedEntry(absl::string_view name, absl::string_view fact) {
  return NotSafetensors(absl::StrCat("tensor \"", name, "\": ", fact));
}

absl::StatusOr<SafetensorsEntry> ParseEntry(const std::string& name,
                                            const Json& json,
                                            std::uint64_t data_size) {
  if (!json.is_object()) return MalformedEntry(name, "is no object");
  const auto dtype = json.find("dtype");
  const auto shape = json.find("shape");
  const auto offsets = json.find("data_offsets");
  if (json.size() != 3 || dtype == json.end() || shape == json.end() ||
      offsets == json.end()) {
    return MalformedEntry(name, "needs dtype, shape and data_offsets");
  }
  if (!dtype->is_string()) return MalformedEntry(name, "dtype is no string");
  const auto extents = ExtentsOf(*shape);
  if (!extents) return MalformedEntry(name, "shape is no array of extents");
  const auto ends = ExtentsOf(*offsets);
  if (!ends || ends->size() != 2) {
    return MalformedEntry(name, "data_offsets are not two offsets");
  }
  const auto begin = static_cast<std::uint64_t>((*ends)[0]);
  const auto end = static_cast<std::uint64_t>((*ends)[1]);
  if (begin > end || end > data_size) {
    return MalformedEntry(name, absl::StrCat("data_offsets [", begin, ", ", end,
                                             "] of ", data_size, " bytes"));
  }
  const std::uint64_t size = end - begin;
  SafetensorsEntry entry{name, dtype->get<std::string>(), *extents,
                         Unread(size), begin};
  const std::int64_t count = check::ElementCount(entry.shape);
  if (count < 0) return MalformedEntry(name, "shape overflows 64 bits");
  for (const NamedDtype& known : kDtypes) {
    if (entry.dtype != known.name) continue;
    // Compares by division, because count * size may overflow.
    if (size % known.size != 0 ||
        size / known.size != static_cast<std::uint64_t>(count)) {
      return MalformedEntry(
          name, absl::StrCat("shape ", check::ShapeText(entry.shape), " of ",
                             entry.dtype, " does not match ", size, " bytes"));
    }
  }
  return entry;
}

// Parses a header. Refuses deep nesting, and names that occur twice, because
// the parser would keep only one of the two.
absl::StatusOr<Json> ParseHeader(absl::Span<const char> text) {
  absl::Status status;
  std::vector<std::set<std::string>> names;  // of each open object or list
  const auto check = [&](int depth, Json::parse_event_t event, Json& value) {
    const auto level = static_cast<std::size_t>(depth);
    names.resize(level + 1);
    if (event == Json::parse_event_t::key &&
        !names.back().insert(value.get<std::string>()).second) {
      status = NotSafetensors(absl::StrCat("\"", value.get<std::string>(),
                                           "\" stands twice in the header"));
    }
    if (level >= kMaxDepth && (event == Json::parse_event_t::object_start ||
                               event == Json::parse_event_t::array_start)) {
      status = NotSafetensors("the header is nested too deeply");
    }
    return status.ok();
  };
  Json header = Json::parse(text.begin(), text.end(), check, false);
  if (!status.ok()) return status;
  if (!header.is_object())
    return NotSafetensors("the header is no JSON object");
  return header;
}

absl::Status ParseMetadata(const Json& json,
                           std::map<std::string, std::string>* metadata) {
  if (!json.is_object()) return NotSafetensors("__metadata__ is no object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) {
      return NotSafetensors("__metadata__ holds values that are no strings");
    }
    metadata->emplace(key, value.get<std::string>());
  }
  return absl::OkStatus();
}

}  // namespace

absl::optional<std::vector<std::int64_t>> ExtentsOf(const Json& list) {
  const auto is_extent = [](const Json& value) {
    return value.is_number_unsigned() &&
           value.get<std::uint64_t>() <= std::uint64_t{INT64_MAX};
  };
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_extent)) {
    return absl::nullopt;
  }
  return list.get<std::vector<std::int64_t>>();
}

SafetensorsEntry* Safetensors::Find(const std::string& name) {
  for (SafetensorsEntry& entry : entries) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

absl::StatusOr<std::uint64_t> SafetensorsHeaderSize(
    absl::Span<const char> first_bytes, std::uint64_t file_size) {
  if (first_bytes.size() < 8 || file_size < 8) {
    return NotSafetensors("shorter than 8 bytes");
  }
  std::uint64_t header_size = 0;
  for (int i = 0; i < 8; ++i) {
    header_size |= std::uint64_t{static_cast<unsigned char>(first_bytes[i])}
                   << (8 * i);
  }
  if (header_size > kMaxHeaderBytes || header_size > file_size - 8) {
    return NotSafetensors(absl::StrCat("a header of ", header_size,
                                       " bytes in ", file_size - 8,
                                       "; the limit is ", kMaxHeaderBytes));
  }
  return header_size;
}

absl::StatusOr<Safetensors> ParseSafetensorsHeader(absl::Span<const char> text,
                                                   std::uint64_t data_size) {
  ASSIGN_OR_RETURN(const Json header, ParseHeader(text));
  Safetensors layout;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      RETURN_IF_ERROR(ParseMetadata(value, &layout.metadata));
      continue;
    }
    ASSIGN_OR_RETURN(auto entry, ParseEntry(name, value, data_size));
    layout.entries.push_back(std::move(entry));
  }
  // Sorts by offset, to find holes and overlaps between neighbours. An empty
  // tensor comes before another tensor that starts at the same offset.
  std::stable_sort(layout.entries.begin(), layout.entries.end(),
                   [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
                     return a.begin != b.begin
                                ? a.begin < b.begin
                                : a.bytes.size() < b.bytes.size();
                   });
  std::uint64_t end = 0;
  for (const SafetensorsEntry& entry : layout.entries) {
    if (entry.begin != end) {
      return MalformedEntry(
          entry.name, absl::StrCat("starts at ", entry.begin,
                                   " where the one before ends at ", end));
    }
    end += entry.bytes.size();
  }
  if (end != data_size) {
    return NotSafetensors(
        absl::StrCat("the tensors cover ", end, " of ", data_size, " bytes"));
  }
  return layout;
}

absl::StatusOr<Safetensors> ParseSafetensors(absl::Span<const char> bytes) {
  ASSIGN_OR_RETURN(const auto size, SafetensorsHeaderSize(bytes, bytes.size()));
  const absl::Span<const char> data = bytes.subspan(8 + size);
  ASSIGN_OR_RETURN(Safetensors file,
                   ParseSafetensorsHeader(bytes.subspan(8, size), data.size()));
  for (SafetensorsEntry& entry : file.entries) {
    entry.bytes = data.subspan(entry.begin, entry.bytes.size());
  }
  return file;
}

absl::StatusOr<TensorView> AsTensor(const SafetensorsEntry& entry) {
  for (const NamedDtype& known : kDtypes) {
    if (entry.dtype == known.name && known.dtype != v1::DTYPE_UNSPECIFIED) {
      return TensorView{known.dtype, entry.shape, entry.bytes};
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("tensor \"", entry.name, "\" is ", entry.dtype,
                   "; must be F32, F16, BF16, F64, F8_E4M3 or F8_E5M2 "
                   "(positions: I32, I64; reposition: I8, and U8 with "
                   "--block-format)"));
}

absl::StatusOr<SafetensorsEntry> FromTensor(const std::string& name,
                                            const TensorView& tensor) {
  for (const NamedDtype& known : kDtypes) {
    if (tensor.dtype == known.dtype && known.dtype != v1::DTYPE_UNSPECIFIED) {
      return SafetensorsEntry{name, known.name, tensor.shape, tensor.bytes};
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat(".safetensors has no ", check::DtypeName(tensor.dtype)));
}

std::string SafetensorsHeader(const Safetensors& file) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!file.metadata.empty()) json["__metadata__"] = file.metadata;
  std::uint64_t offset = 0;
  for (const SafetensorsEntry& entry : file.entries) {
    const std::uint64_t end = offset + entry.bytes.size();
    json[entry.name] = {{"dtype", entry.dtype},
                        {"shape", entry.shape},
                        {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = json.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string header;
  for (int i = 0; i < 8; ++i) {
    header += static_cast<char>(text.size() >> (8 * i));
  }
  return header + text;
}

absl::Status WriteSafetensors(const std::string& path,
                              const Safetensors& file) {
  const std::string header = SafetensorsHeader(file);
  std::vector<absl::Span<const char>> parts = {absl::MakeConstSpan(header)};
  for (const SafetensorsEntry& entry : file.entries) {
    parts.push_back(entry.bytes);
  }
  return WriteFile(path, parts);
}

}  // namespace posenc::cli
