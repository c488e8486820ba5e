// A file of tensors, .npy or .safetensors, some of which are replaced.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/file.h"
#include "client/cli/safetensors.h"
#include "posenc/client.h"

namespace posenc::cli {

// Exit code 2 unless both have the same of the two extensions.
absl::Status CheckFormats(const std::string& in, const std::string& out);

class TensorFile {
 public:
  // An .npy file has one entry, without a name. `flag` is for errors: "--in".
  static absl::StatusOr<TensorFile> Read(const std::string& flag,
                                         const std::string& path);

  bool is_npy() const { return npy_; }
  const std::string& path() const { return path_; }
  const std::vector<SafetensorsEntry>& entries() const { return file_.entries; }

  // nullptr where there is none. Entries may be replaced until Write; their
  // bytes must live as long.
  SafetensorsEntry* Find(const std::string& name) { return file_.Find(name); }

  // The entries whose names match a pattern (the shell's *, ? and [...]), in
  // file order: one of `wanted`, each of which must match some; where there are
  // none, one of `usual`. All can be computed with. The one of an .npy file.
  absl::StatusOr<std::vector<SafetensorsEntry*>> Select(
      const std::vector<std::string>& wanted,
      const std::vector<std::string>& usual);

  // In the format that it was read in; everything else as it was.
  absl::Status Write(const std::string& path) const;

 private:
  std::string path_;
  FileBytes bytes_;
  Safetensors file_;
  bool npy_ = false;
};

// Exit code 2 unless `path` is empty or has one of the two extensions.
absl::Status CheckOut(const std::string& path);

// A file with this tensor alone; an .npy has no name for it.
absl::Status WriteTensor(const std::string& path, const std::string& name,
                         const TensorView& tensor);

// True where `name` matches one of the patterns.
bool Matches(const std::string& name, const std::vector<std::string>& patterns);

// One tensor: "table.npy", or "weights.safetensors:name", where the name may be
// missing if the file holds one tensor only.
absl::Status ReadTensor(const std::string& flag, const std::string& argument,
                        v1::Tensor* tensor);

// Named tensors of one .safetensors file.
struct NamedTarget {
  const char* name;
  v1::Tensor* tensor;
};
absl::Status ReadTensors(const std::string& flag, const std::string& path,
                         const std::vector<NamedTarget>& targets);

}  // namespace posenc::cli
