#include "core/interpretation/gguf_keys.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <variant>
#include <vector>

namespace posenc::core::interpretation {
namespace {

static_assert(std::endian::native == std::endian::little);

// Types of values (gguf_file.h).
enum : std::uint32_t {
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

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

// Appends the value behind its type.
struct AppendValue {
  std::string* out;

  void operator()(std::int64_t value) const { Number(kI64, value); }
  void operator()(std::uint64_t value) const { Number(kU64, value); }
  void operator()(double value) const { Number(kF64, value); }
  void operator()(bool value) const {
    Number(kBool, static_cast<std::uint8_t>(value));
  }
  void operator()(const std::string& text) const {
    Append(std::uint32_t{kString}, out);
    AppendText(text, out);
  }
  void operator()(const std::vector<double>& values) const {
    Append(std::uint32_t{kArray}, out);
    Append(std::uint32_t{kF64}, out);
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
