#include "client/tools/files/npy.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "client/tools/check/element.h"
#include "client/tools/files/file.h"
#include "client/tools/files/safetensors.h"
#include "client/tools/files/status.h"
#include "nlohmann/json.hpp"
#include "posenc/wire/frame.h"

namespace posenc::cli {
namespace {

constexpr absl::string_view kMagic("\x93NUMPY", 6);

// NumPy pads the header so that the data starts at a multiple of this number of
// bytes.
constexpr std::size_t kAlignment = 64;

struct Descr {
  const char* text;
  v1::Dtype dtype;
};
constexpr Descr kDescrs[] = {
    {"<f2", v1::DTYPE_FLOAT16}, {"<f4", v1::DTYPE_FLOAT32},
    {"<f8", v1::DTYPE_FLOAT64}, {"|i1", v1::DTYPE_INT8},
    {"<i4", v1::DTYPE_INT32},   {"<i8", v1::DTYPE_INT64}};

absl::Status NotNpy(absl::string_view fact) {
  return absl::InvalidArgumentError(absl::StrCat("not a .npy file: ", fact));
}

// Converts the header, a Python literal, to JSON. The literal is a dict with a
// string, a bool and a tuple of integers. JSON has other brackets, words and
// quotes, and no comma at the end of a list. Values that are nested more deeply
// than a tuple are left out.
nlohmann::json HeaderOf(absl::string_view literal) {
  const std::string other = absl::StrReplaceAll(literal, {{"'", "\""},
                                                          {"(", "["},
                                                          {")", "]"},
                                                          {"True", "true"},
                                                          {"False", "false"}});
  std::string text;
  for (const char c : other) {
    if (c == ']' || c == '}') {
      const std::size_t last = text.find_last_not_of(" \n");
      if (last != std::string::npos && text[last] == ',') text.resize(last);
    }
    text += c;
  }
  const auto keep = [](int depth, nlohmann::json::parse_event_t,
                       nlohmann::json&) { return depth <= 2; };
  return nlohmann::json::parse(text, keep, /*allow_exceptions=*/false);
}

absl::StatusOr<v1::Dtype> DtypeOf(absl::string_view descr) {
  for (const Descr& known : kDescrs) {
    if (descr == known.text) return known.dtype;
  }
  if (absl::StartsWith(descr, ">")) {
    return absl::InvalidArgumentError(
        absl::StrCat("dtype '", descr,
                     "' is big-endian; save it little-endian "
                     "(array.astype(array.dtype.newbyteorder('<')))"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("dtype '", descr,
                   "' is not supported; f2, f4, f8, i1, i4 and i8 are, and "
                   "bfloat16 and float8 need .safetensors"));
}

}  // namespace

bool IsNpy(absl::Span<const char> bytes) {
  return absl::StartsWith(absl::string_view(bytes.data(), bytes.size()),
                          kMagic);
}

absl::StatusOr<TensorView> ParseNpy(absl::Span<const char> bytes) {
  const absl::string_view text(bytes.data(), bytes.size());
  if (!absl::StartsWith(text, kMagic)) return NotNpy("the magic is absent");
  if (text.size() < 8) return NotNpy("it ends inside the version");
  const int major = static_cast<unsigned char>(text[6]);
  const int minor = static_cast<unsigned char>(text[7]);
  if ((major != 1 && major != 2) || minor != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(".npy version ", major, ".", minor,
                     " is not supported; 1.0 and 2.0 are"));
  }
  // Version 1 has the header's length in 16 bits; version 2 has it in 32 bits.
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  const std::size_t header_start = 8 + length_bytes;
  if (text.size() < header_start) return NotNpy("it ends inside the length");
  std::size_t header_size = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) {
    header_size |= std::size_t{static_cast<unsigned char>(text[8 + i])}
                   << (8 * i);
  }
  if (header_size > text.size() - header_start) {
    return NotNpy(absl::StrCat("a header of ", header_size, " bytes in ",
                               text.size() - header_start));
  }

  const nlohmann::json header =
      HeaderOf(text.substr(header_start, header_size));
  if (!header.is_object() || header.size() != 3 || !header.contains("descr") ||
      !header.contains("fortran_order") || !header.contains("shape")) {
    return NotNpy("the header is no dict of descr, fortran_order and shape");
  }
  if (!header["descr"].is_string()) {
    return absl::InvalidArgumentError(
        "structured dtypes are not supported; save one plain array");
  }
  ASSIGN_OR_RETURN(const v1::Dtype dtype,
                   DtypeOf(header["descr"].get<std::string>()));
  if (header["fortran_order"] != false) {
    return absl::InvalidArgumentError(
        "fortran_order is True; save it in C order "
        "(numpy.ascontiguousarray)");
  }
  const absl::optional<std::vector<std::int64_t>> shape =
      ExtentsOf(header["shape"]);
  if (!shape) return NotNpy("shape is no tuple of integers");
  const std::int64_t count = check::ElementCount(*shape);
  const std::size_t size = wire::ElementBytes(dtype);
  const absl::Span<const char> data = bytes.subspan(header_start + header_size);
  // Compares by division, because count * size may overflow.
  if (count < 0 || data.size() % size != 0 ||
      static_cast<std::uint64_t>(count) != data.size() / size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shape ", check::ShapeText(*shape), " of ", check::DtypeName(dtype),
        " does not match ", data.size(), " bytes of data"));
  }
  return TensorView{dtype, *shape, data};
}

absl::StatusOr<std::string> NpyHeader(const TensorView& tensor) {
  const char* descr = nullptr;
  for (const Descr& known : kDescrs) {
    if (known.dtype == tensor.dtype) descr = known.text;
  }
  if (descr == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(".npy has no ", check::DtypeName(tensor.dtype),
                     "; write .safetensors, or choose float32"));
  }
  // A tuple with one element needs a comma: (3,).
  const absl::string_view comma = tensor.shape.size() == 1 ? "," : "";
  std::string dict = absl::StrCat(
      "{'descr': '", descr, "', 'fortran_order': False, 'shape': (",
      absl::StrJoin(tensor.shape, ", "), comma, "), }");
  // Ten bytes precede the dict. The length of the dict fits into 16 bits,
  // because results have few extents.
  const std::size_t length =
      (10 + dict.size() + 1 + kAlignment - 1) / kAlignment * kAlignment - 10;
  dict.resize(length - 1, ' ');
  return absl::StrCat(kMagic, absl::string_view("\x01\0", 2),
                      std::string{static_cast<char>(length & 0xff),
                                  static_cast<char>(length >> 8)},
                      dict, "\n");
}

absl::Status WriteNpy(const std::string& path, const TensorView& tensor) {
  ASSIGN_OR_RETURN(const std::string header, InFile(path, NpyHeader(tensor)));
  return WriteFile(path, {absl::MakeConstSpan(header), tensor.bytes});
}

}  // namespace posenc::cli
