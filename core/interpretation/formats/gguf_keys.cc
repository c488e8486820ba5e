// WriteGgufKeys(): a file of keys alone.

#include <cstring>

#include "core/interpretation/formats/gguf_format.h"

namespace posenc::core::interpretation {
namespace {

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

  void operator()(std::int64_t value) const { Number(kGgufI64, value); }
  void operator()(std::uint64_t value) const { Number(kGgufU64, value); }
  void operator()(double value) const { Number(kGgufF64, value); }
  void operator()(bool value) const {
    Number(kGgufBool, static_cast<std::uint8_t>(value));
  }
  void operator()(const std::string& text) const {
    Append<std::uint32_t>(kGgufString, out);
    AppendText(text, out);
  }
  void operator()(const std::vector<double>& values) const {
    Append<std::uint32_t>(kGgufArray, out);
    Append<std::uint32_t>(kGgufF64, out);
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
