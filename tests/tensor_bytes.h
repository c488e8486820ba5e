// What tests over the client put into tensors, and find in them.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "posenc/messages.h"

namespace posenc {

// Bytes that differ from each other and by seed.
inline std::string Bytes(std::size_t size, unsigned seed = 1) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) {
    seed = seed * 1664525u + 1013904223u;  // Numerical Recipes' generator
    byte = static_cast<char>(seed >> 24);
  }
  return bytes;
}

inline std::string AsString(absl::Span<const char> bytes) {
  return std::string(bytes.data(), bytes.size());
}

// A tensor over elements that outlive it.
template <typename T>
TensorView View(v1::Dtype dtype, std::vector<std::int64_t> shape,
                const std::vector<T>& elements) {
  return {dtype,
          std::move(shape),
          {reinterpret_cast<const char*>(elements.data()),
           elements.size() * sizeof(T)}};
}

}  // namespace posenc
