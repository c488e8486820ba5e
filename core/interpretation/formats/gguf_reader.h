// Reads the bytes of a GGUF file from front to back.

#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/interpretation/formats/gguf_format.h"

namespace posenc::core::interpretation {

// Reads in blocks. After an error every read gives 0 or nothing.
class GgufReader {
 public:
  explicit GgufReader(const ByteSource& source) : source_(source) {}

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
  bool Needs(std::uint64_t n, absl::string_view what, std::uint64_t begin);

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
  std::string Text(std::uint64_t kept);

  void Skip(std::uint64_t n) { at_ += n; }

  // Adds `bytes` to the size of all names and values that are kept. If this
  // size exceeds a limit, reports an error.
  void Keep(std::uint64_t bytes);

 private:
  void Copy(char* to, std::size_t n);

  const ByteSource& source_;
  std::uint64_t at_ = 0;
  std::uint64_t begin_ = 0;
  std::uint64_t kept_ = 0;
  std::string piece_;
  absl::Status status_;
};

}  // namespace posenc::core::interpretation
