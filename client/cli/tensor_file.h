// Files of tensors, .npy or .safetensors, and flags that name a tensor in one.
// A command reads a file, replaces some of its tensors by the server's answers
// and writes all of it.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/file.h"
#include "client/cli/safetensors.h"
#include "posenc/client.h"

namespace posenc::cli {

// Exit code 2 unless both paths end in .npy, or both in .safetensors. "-",
// standard input or output, may be either.
absl::Status CheckFormats(const std::string& in, const std::string& out);

// The bytes of the file and entries that point into them.
class TensorFile {
 public:
  // An .npy file becomes one entry with an empty name. What comes from standard
  // input ("-") tells by its first bytes what it is. Errors name `flag`, which
  // is "--in" or the like.
  static absl::StatusOr<TensorFile> Read(const std::string& flag,
                                         const std::string& path);

  bool is_npy() const { return npy_; }
  const std::string& path() const { return path_; }
  const std::vector<SafetensorsEntry>& entries() const { return file_.entries; }

  // nullptr if there is none of this name. The caller may replace an entry's
  // bytes by others, which must live until Write() has returned.
  SafetensorsEntry* Find(const std::string& name) { return file_.Find(name); }

  // The entries whose names match one of the patterns (the shell's *, ? and
  // [...]), in file order. The patterns are `wanted`, each of which must match
  // some entry, or `usual` if there are none. An .npy file has one entry, which
  // is always selected. NOT_FOUND if nothing matches; an error too if a
  // selected tensor has a dtype that the server does not compute with.
  absl::StatusOr<std::vector<SafetensorsEntry*>> Select(
      const std::vector<std::string>& wanted,
      const std::vector<std::string>& usual);

  // Exit code 2 if `out` has the extension of the other format, which
  // CheckFormats() cannot tell of standard input.
  absl::Status CheckFormat(const std::string& out) const;

  // Writes it in the format that it was read in. What was not replaced is as it
  // was.
  absl::Status Write(const std::string& path) const;

 private:
  std::string path_;
  FileBytes bytes_;
  Safetensors file_;
  bool npy_ = false;
};

// Exit code 2 unless `path` is empty, "-" or has one of the two extensions.
absl::Status CheckOut(const std::string& path);

// Whether a single tensor is written to `path` as .npy, which standard output
// gets.
bool IsNpyOutput(const std::string& path);

// Writes a file with this tensor alone. An .npy file has no place for its name.
absl::Status WriteTensor(const std::string& path, const std::string& name,
                         const TensorView& tensor);

// True if `name` matches one of the patterns.
bool Matches(const std::string& name, const std::vector<std::string>& patterns);

// Reads the tensor that a flag's argument names: "table.npy",
// "weights.safetensors:name", "-" or "-:name". The name may be left out if the
// file holds one tensor only.
absl::Status ReadTensor(const std::string& flag, const std::string& argument,
                        v1::Tensor* tensor);

// Reads several tensors of one .safetensors file, by name. All must be there.
struct NamedTarget {
  std::string name;
  v1::Tensor* tensor;
};
absl::Status ReadTensors(const std::string& flag, const std::string& path,
                         const std::vector<NamedTarget>& targets);

}  // namespace posenc::cli
