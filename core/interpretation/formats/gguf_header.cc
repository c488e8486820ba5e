// ReadGguf(): the parser of a GGUF file's header.

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/interpretation/formats/gguf_format.h"

namespace posenc::core::interpretation {
namespace {

constexpr std::uint64_t kMaxKeys = 1'000'000;
constexpr std::uint64_t kMaxTensors = 1'000'000;
constexpr std::uint64_t kMaxName = 65535;  // bytes: the format's limit for keys
constexpr std::uint64_t kMaxString = std::uint64_t{1} << 20;
constexpr std::uint64_t kMaxElements = 65536;  // longest list that is kept
constexpr std::uint64_t kMaxAlignment = std::uint64_t{1} << 20;
constexpr std::uint64_t kHeaderBytes = 24;
// The smallest sizes in a file: a key with an empty name has 8 + 0 + 4 + 1
// bytes, a tensor 8 + 0 + 4 + 4 + 8.
constexpr std::uint64_t kLeastKeyBytes = 13;
constexpr std::uint64_t kLeastTensorBytes = 24;

// Sizes of values in bytes; 0 if the size is not fixed.
constexpr std::uint64_t kSizes[kGgufTypes] = {1, 1, 2, 2, 4, 4, 4,
                                              1, 0, 0, 8, 8, 8};

constexpr std::size_t kPiece = std::size_t{64} << 10;
// Bound on the memory of all names and values that are kept. A usual model
// needs less than 1 MiB. In memory, a list of bools takes eight times its size
// in the file.
constexpr std::uint64_t kMaxKept = std::uint64_t{64} << 20;

static_assert(std::endian::native == std::endian::little);

// Reads the bytes of a file from front to back, in blocks. After an error,
// every read returns 0 or an empty text.
class HeaderReader {
 public:
  explicit HeaderReader(const ByteSource& source) : source_(source) {}

  std::uint64_t at() const { return at_; }
  std::uint64_t left() const { return source_.size - at_; }
  const absl::Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }
  template <typename... Facts>
  void Fail(const Facts&... facts) {
    if (ok()) status_ = Malformed(facts...);
  }

  template <typename T>
  T Scalar(absl::string_view what) {
    T value{};
    if (Needs(sizeof(T), what, at_)) {
      Copy(reinterpret_cast<char*>(&value), sizeof(T));
    }
    return ok() ? value : T{};
  }

  // Reads a string. A string of more than `kept` bytes is skipped, and the
  // result is empty.
  std::string Text(std::uint64_t kept) {
    const std::uint64_t begin = at_;
    const auto length = Scalar<std::uint64_t>("a string's length");
    std::string text;
    if (!Needs(length, "a string", begin)) return text;
    if (length > kept) {
      Skip(length);
    } else {
      text.resize(length);
      Copy(text.data(), length);
    }
    return text;
  }

  void Skip(std::uint64_t n) { at_ += n; }

  // Adds `bytes` to the size of all names and values that are kept. If this
  // size exceeds kMaxKept, reports an error.
  void Keep(std::uint64_t bytes) {
    kept_ += bytes;
    if (kept_ > kMaxKept) {
      Fail("names and values that would be kept have more than ", kMaxKept,
           " bytes");
    }
  }

 private:
  // True if `n` bytes are left for `what` ("a string"), which starts at
  // `begin`. Reports an error if fewer bytes are left.
  bool Needs(std::uint64_t n, absl::string_view what, std::uint64_t begin) {
    if (!ok()) return false;
    if (n <= left()) return true;
    Fail("ends at byte ", source_.size, "; ", what, " of ", n,
         " bytes begins at byte ", begin);
    return false;
  }

  void Copy(char* to, std::size_t n) {
    while (n > 0) {
      if (at_ < begin_ || at_ >= begin_ + piece_.size()) {
        begin_ = at_;
        piece_.resize(std::min<std::uint64_t>(kPiece, left()));
        status_ = source_.read(begin_, piece_.data(), piece_.size());
        if (!ok()) return piece_.clear();
      }
      const std::size_t start = at_ - begin_;
      const std::size_t have = std::min(n, piece_.size() - start);
      std::memcpy(to, piece_.data() + start, have);
      to += have;
      n -= have;
      at_ += have;
    }
  }

  const ByteSource& source_;
  std::uint64_t at_ = 0;
  std::uint64_t begin_ = 0;
  std::uint64_t kept_ = 0;
  std::string piece_;
  absl::Status status_;
};

// True for the element types that llama.cpp reads as numbers, and for F64,
// which WriteGgufKeys() writes.
bool IsOfNumbers(std::uint32_t type) {
  return type == kGgufU32 || type == kGgufI32 || type == kGgufBool ||
         type == kGgufF64;
}

// True for keys that say something about rotation or shape.
bool IsOfInterest(absl::string_view key) {
  for (const absl::string_view exact :
       {"general.architecture", "general.alignment", "general.name",
        "split.no"}) {
    if (key == exact) return true;
  }
  for (const absl::string_view end :
       {".context_length", ".block_count", ".embedding_length"}) {
    if (absl::EndsWith(key, end)) return true;
  }
  return absl::StrContains(key, ".rope.") ||
         absl::StrContains(key, ".attention.");
}

bool IsTensorOfInterest(absl::string_view name) {
  return name == "rope_freqs.weight" || name == "rope_factors_long.weight" ||
         name == "rope_factors_short.weight" ||
         absl::EndsWith(name, ".attn_q.weight");
}

GgufValue ReadScalar(std::uint32_t type, HeaderReader* reader) {
  constexpr absl::string_view kWhat = "a value";
  switch (type) {
    case kGgufU8:
      return std::uint64_t{reader->Scalar<std::uint8_t>(kWhat)};
    case kGgufI8:
      return std::int64_t{reader->Scalar<std::int8_t>(kWhat)};
    case kGgufU16:
      return std::uint64_t{reader->Scalar<std::uint16_t>(kWhat)};
    case kGgufI16:
      return std::int64_t{reader->Scalar<std::int16_t>(kWhat)};
    case kGgufU32:
      return std::uint64_t{reader->Scalar<std::uint32_t>(kWhat)};
    case kGgufI32:
      return std::int64_t{reader->Scalar<std::int32_t>(kWhat)};
    case kGgufF32:
      return double{reader->Scalar<float>(kWhat)};
    case kGgufBool:
      return reader->Scalar<std::uint8_t>(kWhat) != 0;
    case kGgufU64:
      return reader->Scalar<std::uint64_t>(kWhat);
    case kGgufI64:
      return reader->Scalar<std::int64_t>(kWhat);
    default:
      return reader->Scalar<double>(kWhat);
  }
}

// Reads an array to its end. Returns the elements if they are `wanted`, else an
// empty list. Returns a single NaN if llama.cpp does not read the elements as
// numbers.
std::vector<double> ReadArray(const std::string& key, bool wanted,
                              HeaderReader* reader) {
  const auto type = reader->Scalar<std::uint32_t>("an array's type");
  const auto count = reader->Scalar<std::uint64_t>("an array's length");
  if (!reader->ok()) return {};
  if (type >= kGgufTypes || type == kGgufArray) {
    reader->Fail("key ", Shown(key), ": an array of ",
                 type == kGgufArray ? "arrays" : absl::StrCat("type ", type));
    return {};
  }
  const std::uint64_t least = type == kGgufString ? 8 : kSizes[type];
  if (count > reader->left() / least) {
    reader->Fail("key ", Shown(key), ": ends at byte ",
                 reader->at() + reader->left(), "; an array of ", count,
                 " elements begins at byte ", reader->at());
    return {};
  }
  if (type == kGgufString) {
    for (std::uint64_t i = 0; i < count && reader->ok(); ++i) reader->Text(0);
  } else if (!wanted || count > kMaxElements || !IsOfNumbers(type)) {
    reader->Skip(count * least);
  }
  if (!IsOfNumbers(type) && count > 0) {
    return {std::numeric_limits<double>::quiet_NaN()};
  }
  if (!wanted || count > kMaxElements) return {};
  std::vector<double> numbers;
  for (std::uint64_t i = 0; i < count && reader->ok(); ++i) {
    numbers.push_back(AsNumber(ReadScalar(type, reader)));
  }
  return numbers;
}

void ReadKey(std::uint64_t index, std::set<std::string>* names,
             HeaderReader* reader, GgufFile* file) {
  const std::uint64_t begin = reader->at();
  const std::string key = reader->Text(kMaxName);
  if (!reader->ok()) return;
  if (key.empty()) {
    return reader->Fail("key ", index,
                        reader->at() - begin > 8
                            ? " has a name of more than 65535 bytes"
                            : " has an empty name");
  }
  reader->Keep(key.size());
  if (!names->insert(key).second) {
    return reader->Fail("key ", Shown(key), " stands twice");
  }
  const auto type = reader->Scalar<std::uint32_t>("a key's type");
  if (!reader->ok()) return;
  if (type >= kGgufTypes) {
    return reader->Fail("key ", Shown(key), " is of type ", type,
                        "; types are 0 to 12");
  }
  const bool wanted = IsOfInterest(key);
  if (type == kGgufArray) {
    std::vector<double> numbers = ReadArray(key, wanted, reader);
    reader->Keep(numbers.size() * sizeof(double));
    if (wanted) file->keys[key] = std::move(numbers);
  } else if (type == kGgufString) {
    std::string text = reader->Text(wanted ? kMaxString : 0);
    reader->Keep(text.size());
    if (wanted) file->keys[key] = std::move(text);
  } else {
    GgufValue value = ReadScalar(type, reader);
    if (wanted) file->keys[key] = std::move(value);
  }
}

void ReadTensor(std::uint64_t index, std::set<std::string>* names,
                HeaderReader* reader, GgufFile* file) {
  GgufTensor tensor;
  tensor.name = reader->Text(kMaxName);
  if (!reader->ok()) return;
  if (tensor.name.empty()) {
    return reader->Fail("tensor ", index, " has no name that can be read");
  }
  reader->Keep(tensor.name.size());
  if (!names->insert(tensor.name).second) {
    return reader->Fail("tensor ", Shown(tensor.name), " stands twice");
  }
  const auto dimensions =
      reader->Scalar<std::uint32_t>("a tensor's number of dimensions");
  if (!reader->ok()) return;
  if (dimensions > 4) {
    return reader->Fail("tensor ", Shown(tensor.name), " has ", dimensions,
                        " dimensions; at most 4 are possible");
  }
  std::uint64_t elements = 1;
  for (std::uint32_t i = 0; i < dimensions; ++i) {
    const auto extent = reader->Scalar<std::uint64_t>("an extent");
    if (extent > 0 && elements > std::uint64_t{INT64_MAX} / extent) {
      return reader->Fail("tensor ", Shown(tensor.name),
                          ": its extents overflow 64 bits");
    }
    elements *= extent;
    tensor.shape.push_back(extent);
  }
  tensor.type = reader->Scalar<std::uint32_t>("a tensor's type");
  tensor.offset = reader->Scalar<std::uint64_t>("a tensor's offset");
  if (reader->ok() && IsTensorOfInterest(tensor.name)) {
    file->tensors.push_back(std::move(tensor));
  }
}

absl::Status CheckStart(const ByteSource& source) {
  char start[8] = {};
  const auto have = std::min<std::uint64_t>(source.size, sizeof(start));
  RETURN_IF_ERROR(source.read(0, start, have));
  const absl::string_view magic(start, std::min<std::uint64_t>(have, 4));
  if (magic != absl::string_view("GGUF").substr(0, magic.size())) {
    return Malformed("begins with \"", absl::CHexEscape(magic),
                     "\", not \"GGUF\"");
  }
  if (have == sizeof(start)) {
    std::uint32_t version = 0;
    std::memcpy(&version, start + 4, 4);
    if (version != 0 && (version & 0xffff) == 0) {
      const std::uint32_t swapped = __builtin_bswap32(version);
      return Malformed("big-endian GGUF (version ", swapped,
                       "); only little-endian files are read");
    }
    if (version != 2 && version != 3) {
      return Malformed("GGUF version ", version,
                       version == 1 ? " (32-bit counts)" : "",
                       " is not read; convert it again");
    }
  }
  if (source.size < kHeaderBytes) {
    return Malformed("ends at byte ", source.size, "; a header of ",
                     kHeaderBytes, " bytes begins at byte 0");
  }
  return absl::OkStatus();
}

void CheckCount(std::uint64_t count, absl::string_view what,
                std::uint64_t least_bytes, std::uint64_t most,
                HeaderReader* reader) {
  if (count > reader->left() / least_bytes) {
    reader->Fail(count, " ", what, " in ", reader->left(), " bytes");
  } else if (count > most) {
    reader->Fail(count, " ", what, "; at most ", most, " are read");
  }
}

}  // namespace

absl::StatusOr<GgufFile> ReadGguf(const ByteSource& source) {
  RETURN_IF_ERROR(CheckStart(source));
  HeaderReader reader(source);
  GgufFile file;
  reader.Skip(4);
  file.version = reader.Scalar<std::uint32_t>("the version");
  const auto tensors = reader.Scalar<std::uint64_t>("a count");
  const auto keys = reader.Scalar<std::uint64_t>("a count");
  CheckCount(keys, "keys", kLeastKeyBytes, kMaxKeys, &reader);
  CheckCount(tensors, "tensors", kLeastTensorBytes, kMaxTensors, &reader);
  std::set<std::string> names;
  for (std::uint64_t i = 0; i < keys && reader.ok(); ++i) {
    ReadKey(i, &names, &reader, &file);
  }
  names.clear();
  for (std::uint64_t i = 0; i < tensors && reader.ok(); ++i) {
    ReadTensor(i, &names, &reader, &file);
  }
  absl::Status status = reader.status();
  const std::int64_t align =
      file.Integer("general.alignment", &status).value_or(32);
  RETURN_IF_ERROR(status);
  if (align < 1 || align > static_cast<std::int64_t>(kMaxAlignment) ||
      !std::has_single_bit(static_cast<std::uint64_t>(align))) {
    return Malformed("key general.alignment is ", align,
                     "; it must be a power of two up to ", kMaxAlignment);
  }
  const auto step = static_cast<std::uint64_t>(align);
  const std::uint64_t data = (reader.at() + step - 1) / step * step;
  for (GgufTensor& tensor : file.tensors) {
    // Without this check, the sum could overflow to an offset inside the file.
    tensor.offset =
        tensor.offset > UINT64_MAX - data ? UINT64_MAX : tensor.offset + data;
  }
  return file;
}

}  // namespace posenc::core::interpretation
