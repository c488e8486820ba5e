// Files of tensors, .npy or .safetensors, and flags that name a tensor in a
// file. A command reads a file, replaces some tensors by the server's answers
// and writes the whole file.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/tools/files/file.h"
#include "client/tools/files/safetensors.h"
#include "posenc/client.h"

namespace posenc::cli {

// The bytes of the file and entries that point into them.
class TensorFile {
 public:
  // Reads a file. An .npy file becomes one entry with an empty name. The first
  // bytes of standard input ("-") determine its format. Errors name `flag`, for
  // example "--in".
  static absl::StatusOr<TensorFile> Read(const std::string& flag,
                                         const std::string& path);

  bool is_npy() const { return npy_; }
  const std::string& path() const { return path_; }
  const std::vector<SafetensorsEntry>& entries() const { return file_.entries; }

  // Returns the entry of this name, or nullptr. The caller may replace the
  // entry's bytes by other bytes, which must live until Write() has returned.
  SafetensorsEntry* Find(const std::string& name) { return file_.Find(name); }

  // Returns the entries whose names match a pattern (the shell's *, ? and
  // [...]), in file order. The patterns are `wanted`, which must each match an
  // entry, or `defaults` if `wanted` is empty. An .npy file has one entry,
  // which is always selected. Returns NOT_FOUND if nothing matches. A selected
  // tensor with a dtype that the server does not support is also an error.
  absl::StatusOr<std::vector<SafetensorsEntry*>> Select(
      const std::vector<std::string>& wanted,
      const std::vector<std::string>& defaults);

  // Returns an error with exit code 2 unless `out` has the extension of this
  // format, or is "-".
  absl::Status CheckFormat(const std::string& out) const;

  // Writes the file in its format. Tensors that were not replaced are
  // unchanged.
  absl::Status Write(const std::string& path) const;

 private:
  std::string path_;
  FileBytes bytes_;
  Safetensors file_;
  bool npy_ = false;
};

// Returns an error with exit code 2 unless `path` is empty, "-" or has one of
// the two extensions.
absl::Status CheckOut(const std::string& path);

// Returns true if a single tensor is written to `path` as .npy. The result is
// also true for standard output.
bool IsNpyOutput(const std::string& path);

// Writes a file with only this tensor. An .npy file cannot store the tensor's
// name.
absl::Status WriteTensor(const std::string& path, const std::string& name,
                         const TensorView& tensor);

bool Matches(const std::string& name, const std::vector<std::string>& patterns);

// Reads the tensor that a flag's argument names: "table.npy",
// "weights.safetensors:name", "-" or "-:name". The name may be left out if the
// file has only one tensor.
absl::Status ReadTensor(const std::string& flag, const std::string& argument,
                        v1::Tensor* tensor);

// Reads several tensors of one .safetensors file, by name. All must exist.
absl::Status ReadTensors(
    const std::string& flag, const std::string& path,
    const std::vector<std::pair<std::string, v1::Tensor*>>& targets);

}  // namespace posenc::cli
