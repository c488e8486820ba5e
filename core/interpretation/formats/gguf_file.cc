#include "core/interpretation/formats/gguf_file.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/error.h"

namespace posenc::core::interpretation {
namespace {

constexpr std::size_t kPiece = std::size_t{64} << 10;
constexpr std::uint64_t kMaxKeys = 1'000'000;
constexpr std::uint64_t kMaxTensors = 1'000'000;
constexpr std::uint64_t kMaxName = 65535;  // the format's limit for keys
constexpr std::uint64_t kMaxString = std::uint64_t{1} << 20;
constexpr std::uint64_t kMaxElements = 65536;  // of a list that is kept
constexpr std::uint64_t kMaxAlignment = std::uint64_t{1} << 20;
constexpr std::uint64_t kMaxTensorElements = std::uint64_t{1} << 24;
// Bound on the memory of all names and values that are kept. A usual model
// needs less than 1 MiB. A list of bools takes eight times its size in the
// file.
constexpr std::uint64_t kMaxKept = std::uint64_t{64} << 20;
constexpr std::uint64_t kHeaderBytes = 24;
// The smallest sizes in a file: a key with an empty name has 8 + 0 + 4 + 1
// bytes, a tensor 8 + 0 + 4 + 4 + 8.
constexpr std::uint64_t kLeastKeyBytes = 13;
constexpr std::uint64_t kLeastTensorBytes = 24;

enum ValueType : std::uint32_t {
  kU8 = 0,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
  kTypes
};
// Sizes of values in bytes; 0 if the size is not fixed.
constexpr std::uint64_t kSizes[kTypes] = {1, 1, 2, 2, 4, 4, 4,
                                          1, 0, 0, 8, 8, 8};

// True for the element types that llama.cpp reads as numbers, and for F64,
// which WriteGgufKeys() writes.
bool IsOfNumbers(std::uint32_t type) {
  return type == kU32 || type == kI32 || type == kBool || type == kF64;
}

template <typename... Facts>
absl::Status Malformed(const Facts&... facts) {
  return absl::InvalidArgumentError(absl::StrCat(facts...));
}

// Returns a name for a message: control characters are escaped, and a long name
// is cut.
std::string Shown(absl::string_view name) {
  constexpr std::size_t kShown = 100;
  return absl::CHexEscape(name.substr(0, kShown));
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

static_assert(std::endian::native == std::endian::little);

// Reads the header from front to back, in blocks of kPiece bytes.
class Reader {
 public:
  explicit Reader(const ByteSource& source) : source_(source) {}

  std::uint64_t at() const { return at_; }
  std::uint64_t left() const { return source_.size - at_; }
  const absl::Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }
  template <typename... Facts>
  void Fail(const Facts&... facts) {
    if (ok()) status_ = Malformed(facts...);
  }

  // True if `n` bytes are left for `what` ("a string"), which starts at
  // `begin`. Else reports an error.
  bool Needs(std::uint64_t n, absl::string_view what, std::uint64_t begin) {
    if (!ok()) return false;
    if (n <= left()) return true;
    Fail("ends at byte ", source_.size, "; ", what, " of ", n,
         " bytes begins at byte ", begin);
    return false;
  }

  template <typename T>
  T Scalar(absl::string_view what) {
    T value{};
    if (!Needs(sizeof(T), what, at_)) return value;
    char bytes[sizeof(T)];
    Copy(bytes, sizeof(T));
    if (ok()) std::memcpy(&value, bytes, sizeof(T));
    return value;
  }

  // Reads a string. A string of more than `kept` bytes is skipped, and the
  // result is empty.
  std::string Text(std::uint64_t kept) {
    const std::uint64_t begin = at_;
    const auto length = Scalar<std::uint64_t>("a string's length");
    if (!Needs(length, "a string", begin)) return "";
    std::string text;
    if (length > kept) {
      Skip(length);
    } else {
      text.resize(length);
      Copy(text.data(), length);
    }
    return text;
  }

  void Skip(std::uint64_t n) { at_ += n; }

  // Adds to the memory that is kept. More than kMaxKept is an error.
  void Keep(std::uint64_t bytes) {
    kept_ += bytes;
    if (kept_ > kMaxKept) {
      Fail("names and values that would be kept have more than ", kMaxKept,
           " bytes");
    }
  }

 private:
  void Copy(char* to, std::size_t n) {
    while (n > 0 && ok()) {
      if (at_ < begin_ || at_ >= begin_ + piece_.size()) {
        begin_ = at_;
        piece_.resize(std::min<std::uint64_t>(kPiece, left()));
        const absl::Status read =
            source_.read(begin_, piece_.data(), piece_.size());
        if (!read.ok()) {
          status_ = read;
          piece_.clear();
          return;
        }
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

GgufValue ReadScalar(std::uint32_t type, Reader* reader) {
  constexpr absl::string_view kWhat = "a value";
  switch (type) {
    case kU8:
      return std::uint64_t{reader->Scalar<std::uint8_t>(kWhat)};
    case kI8:
      return std::int64_t{reader->Scalar<std::int8_t>(kWhat)};
    case kU16:
      return std::uint64_t{reader->Scalar<std::uint16_t>(kWhat)};
    case kI16:
      return std::int64_t{reader->Scalar<std::int16_t>(kWhat)};
    case kU32:
      return std::uint64_t{reader->Scalar<std::uint32_t>(kWhat)};
    case kI32:
      return std::int64_t{reader->Scalar<std::int32_t>(kWhat)};
    case kF32:
      return double{reader->Scalar<float>(kWhat)};
    case kBool:
      return reader->Scalar<std::uint8_t>(kWhat) != 0;
    case kU64:
      return reader->Scalar<std::uint64_t>(kWhat);
    case kI64:
      return reader->Scalar<std::int64_t>(kWhat);
    default:
      return reader->Scalar<double>(kWhat);
  }
}

double AsNumber(const GgufValue& value) {
  if (const auto* i = std::get_if<std::int64_t>(&value)) {
    return static_cast<double>(*i);
  }
  if (const auto* u = std::get_if<std::uint64_t>(&value)) {
    return static_cast<double>(*u);
  }
  if (const auto* b = std::get_if<bool>(&value)) return *b ? 1 : 0;
  return std::get<double>(value);
}

// Reads an array to its end. Returns the elements if they are `wanted`, else an
// empty list. Returns a single NaN if llama.cpp does not read the elements as
// numbers.
std::vector<double> ReadArray(const std::string& key, bool wanted,
                              Reader* reader) {
  const auto type = reader->Scalar<std::uint32_t>("an array's type");
  const auto count = reader->Scalar<std::uint64_t>("an array's length");
  if (!reader->ok()) return {};
  if (type >= kTypes || type == kArray) {
    reader->Fail("key ", Shown(key), ": an array of ",
                 type == kArray ? "arrays" : absl::StrCat("type ", type));
    return {};
  }
  const std::uint64_t least = type == kString ? 8 : kSizes[type];
  if (count > reader->left() / least) {
    reader->Fail("key ", Shown(key), ": ends at byte ",
                 reader->at() + reader->left(), "; an array of ", count,
                 " elements begins at byte ", reader->at());
    return {};
  }
  if (type == kString) {
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

void ReadKey(std::uint64_t index, std::set<std::string>* names, Reader* reader,
             GgufFile* file) {
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
  if (type >= kTypes) {
    return reader->Fail("key ", Shown(key), " is of type ", type,
                        "; types are 0 to 12");
  }
  const bool wanted = IsOfInterest(key);
  if (type == kArray) {
    std::vector<double> numbers = ReadArray(key, wanted, reader);
    reader->Keep(numbers.size() * sizeof(double));
    if (wanted) file->keys[key] = std::move(numbers);
  } else if (type == kString) {
    std::string text = reader->Text(wanted ? kMaxString : 0);
    reader->Keep(text.size());
    if (wanted) file->keys[key] = std::move(text);
  } else {
    GgufValue value = ReadScalar(type, reader);
    if (wanted) file->keys[key] = std::move(value);
  }
}

void ReadTensor(std::uint64_t index, std::set<std::string>* names,
                Reader* reader, GgufFile* file) {
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
  const absl::Status status = source.read(0, start, have);
  if (!status.ok()) return status;
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

absl::Status CheckCount(std::uint64_t count, absl::string_view what,
                        std::uint64_t least_bytes, std::uint64_t most,
                        std::uint64_t left) {
  if (count > left / least_bytes) {
    return Malformed(count, " ", what, " in ", left, " bytes");
  }
  if (count > most) {
    return Malformed(count, " ", what, "; at most ", most, " are read");
  }
  return absl::OkStatus();
}

absl::Status WrongType(absl::string_view key, absl::string_view wanted,
                       const GgufValue& value) {
  const char* const is = std::holds_alternative<std::string>(value) ? "a string"
                         : std::holds_alternative<std::vector<double>>(value)
                             ? "an array"
                         : std::holds_alternative<bool>(value) ? "a bool"
                                                               : "a number";
  return Malformed("key ", Shown(key), " is ", is, "; it must be ", wanted);
}

template <typename T>
void Append(T value, std::string* out) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out->append(bytes, sizeof(T));
}

void AppendText(const std::string& text, std::string* out) {
  Append(std::uint64_t{text.size()}, out);
  out->append(text);
}

// Appends the type of a value and then the value.
struct AppendValue {
  std::string* out;

  void operator()(std::int64_t value) const { Number(kI64, value); }
  void operator()(std::uint64_t value) const { Number(kU64, value); }
  void operator()(double value) const { Number(kF64, value); }
  void operator()(bool value) const {
    Number(kBool, static_cast<std::uint8_t>(value));
  }
  void operator()(const std::string& text) const {
    Append<std::uint32_t>(kString, out);
    AppendText(text, out);
  }
  void operator()(const std::vector<double>& values) const {
    Append<std::uint32_t>(kArray, out);
    Append<std::uint32_t>(kF64, out);
    Append(std::uint64_t{values.size()}, out);
    for (const double value : values) Append(value, out);
  }

  template <typename T>
  void Number(std::uint32_t type, T value) const {
    Append(type, out);
    Append(value, out);
  }
};

}  // namespace

ByteSource SourceOf(absl::string_view bytes) {
  return {bytes.size(), [bytes](std::uint64_t offset, char* to, std::size_t n) {
            std::copy_n(bytes.data() + offset, n, to);
            return absl::OkStatus();
          }};
}

const GgufTensor* GgufFile::FindTensor(absl::string_view name) const {
  for (const GgufTensor& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

std::optional<double> GgufFile::Number(absl::string_view key,
                                       absl::Status* status) const {
  const auto it = keys.find(std::string(key));
  if (it == keys.end()) return std::nullopt;
  const GgufValue& value = it->second;
  if (std::holds_alternative<std::string>(value) ||
      std::holds_alternative<bool>(value) ||
      std::holds_alternative<std::vector<double>>(value)) {
    status->Update(WrongType(key, "a number", value));
    return std::nullopt;
  }
  const double number = AsNumber(value);
  if (std::isfinite(number)) return number;
  status->Update(Malformed("key ", Shown(key), " is ",
                           std::isnan(number) ? "NaN" : "infinite",
                           "; it must be a finite number"));
  return std::nullopt;
}

std::optional<std::int64_t> GgufFile::Integer(absl::string_view key,
                                              absl::Status* status) const {
  const std::optional<double> number = Number(key, status);
  if (!number) return std::nullopt;
  if (*number == std::floor(*number) && std::abs(*number) <= 0x1p53) {
    return static_cast<std::int64_t>(*number);
  }
  status->Update(Malformed("key ", Shown(key), " is ", NumberText(*number),
                           "; it must be a whole number"));
  return std::nullopt;
}

std::optional<std::string> GgufFile::Text(absl::string_view key,
                                          absl::Status* status) const {
  const auto it = keys.find(std::string(key));
  if (it == keys.end()) return std::nullopt;
  if (const auto* text = std::get_if<std::string>(&it->second)) return *text;
  status->Update(WrongType(key, "a string", it->second));
  return std::nullopt;
}

std::vector<double> GgufFile::Numbers(absl::string_view key,
                                      absl::Status* status) const {
  const auto it = keys.find(std::string(key));
  if (it == keys.end()) return {};
  if (const auto* list = std::get_if<std::vector<double>>(&it->second)) {
    for (const double number : *list) {
      if (std::isfinite(number)) continue;
      status->Update(Malformed("key ", Shown(key),
                               " is an array, but not of integers of 32 bits, "
                               "and llama.cpp refuses that"));
    }
    return *list;
  }
  absl::Status no_number;
  if (const auto number = Number(key, &no_number)) return {*number};
  status->Update(WrongType(key, "a number or an array of numbers", it->second));
  return {};
}

absl::StatusOr<GgufFile> ReadGguf(const ByteSource& source) {
  absl::Status status = CheckStart(source);
  if (!status.ok()) return status;
  Reader reader(source);
  GgufFile file;
  reader.Skip(4);
  file.version = reader.Scalar<std::uint32_t>("the version");
  const auto tensors = reader.Scalar<std::uint64_t>("a count");
  const auto keys = reader.Scalar<std::uint64_t>("a count");
  if (!reader.ok()) return reader.status();
  status = CheckCount(keys, "keys", kLeastKeyBytes, kMaxKeys, reader.left());
  if (status.ok()) {
    status = CheckCount(tensors, "tensors", kLeastTensorBytes, kMaxTensors,
                        reader.left());
  }
  if (!status.ok()) return status;
  std::set<std::string> names;
  for (std::uint64_t i = 0; i < keys && reader.ok(); ++i) {
    ReadKey(i, &names, &reader, &file);
  }
  names.clear();
  for (std::uint64_t i = 0; i < tensors && reader.ok(); ++i) {
    ReadTensor(i, &names, &reader, &file);
  }
  if (!reader.ok()) return reader.status();
  const std::int64_t align =
      file.Integer("general.alignment", &status).value_or(32);
  if (!status.ok()) return status;
  if (align < 1 || align > static_cast<std::int64_t>(kMaxAlignment) ||
      !std::has_single_bit(static_cast<std::uint64_t>(align))) {
    return Malformed("key general.alignment is ", align,
                     "; it must be a power of two up to ", kMaxAlignment);
  }
  const auto step = static_cast<std::uint64_t>(align);
  const std::uint64_t data = (reader.at() + step - 1) / step * step;
  for (GgufTensor& tensor : file.tensors) {
    // Without this check, a sum that overflows could lie inside the file.
    tensor.offset =
        tensor.offset > UINT64_MAX - data ? UINT64_MAX : tensor.offset + data;
  }
  return file;
}

std::optional<Dtype> GgufDtype(std::uint32_t type) {
  switch (type) {
    case 0:
      return Dtype::kFloat32;
    case 1:
      return Dtype::kFloat16;
    case 28:
      return Dtype::kFloat64;
    case 30:
      return Dtype::kBfloat16;
    default:
      return std::nullopt;
  }
}

std::vector<double> DecodeFloats(Dtype dtype, const char* bytes,
                                 std::size_t n) {
  const auto size = static_cast<std::int64_t>(n);
  const ConstTensorView view = {dtype, {size}, bytes};
  std::vector<double> numbers(n);
  for (std::int64_t i = 0; i < size; ++i) {
    numbers[static_cast<std::size_t>(i)] = ElementAsDouble(view, i);
  }
  return numbers;
}

absl::StatusOr<std::vector<double>> ReadGgufTensor(const ByteSource& source,
                                                   const GgufTensor& tensor) {
  const std::optional<Dtype> dtype = GgufDtype(tensor.type);
  if (!dtype) {
    return Malformed("tensor ", Shown(tensor.name), " is of type ", tensor.type,
                     "; only F32, F16, BF16 and F64 are read");
  }
  std::uint64_t elements = 1;
  for (const std::uint64_t extent : tensor.shape) elements *= extent;
  if (elements > kMaxTensorElements) {
    return Malformed("tensor ", Shown(tensor.name), " has ", elements,
                     " elements; at most ", kMaxTensorElements, " are read");
  }
  const std::uint64_t bytes = elements * DtypeSize(*dtype);
  if (tensor.offset > source.size || bytes > source.size - tensor.offset) {
    return Malformed("ends at byte ", source.size, "; tensor ",
                     Shown(tensor.name), " of ", bytes,
                     " bytes begins at byte ", tensor.offset);
  }
  std::string data(bytes, '\0');
  const absl::Status status = source.read(tensor.offset, data.data(), bytes);
  if (!status.ok()) return status;
  return DecodeFloats(*dtype, data.data(), elements);
}

std::string WriteGgufKeys(const GgufFile& file) {
  std::string out = "GGUF";
  Append(std::uint32_t{3}, &out);
  Append(std::uint64_t{0}, &out);
  Append(std::uint64_t{file.keys.size()}, &out);
  for (const auto& [key, value] : file.keys) {
    AppendText(key, &out);
    std::visit(AppendValue{&out}, value);
  }
  return out;
}

}  // namespace posenc::core::interpretation
