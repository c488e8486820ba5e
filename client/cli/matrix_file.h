// A bias that is written to its file tile by tile, so that it need not fit the
// memory.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/file.h"
#include "posenc/client.h"

namespace posenc::cli {

class MatrixFile {
 public:
  // .npy, or .safetensors with one tensor of this name.
  static absl::StatusOr<MatrixFile> Create(const std::string& path,
                                           const std::string& name);

  // Puts a tile of what `request` asked for where it belongs.
  absl::Status Write(const v1::BuildBiasRequest& request, const BiasTile& tile);

  // INTERNAL where something is missing.
  absl::Status Commit();

  // dtype and shape, known after the first tile.
  const TensorView& matrix() const { return matrix_; }

 private:
  MatrixFile(std::string path, std::string name, OutputFile file)
      : path_(std::move(path)),
        name_(std::move(name)),
        file_(std::move(file)) {}

  absl::Status Start(const v1::BuildBiasRequest& request, const BiasTile& tile);

  std::string path_;
  std::string name_;
  OutputFile file_;
  TensorView matrix_;  // without bytes
  std::int64_t data_start_ = 0;
  std::int64_t missing_ = -1;  // elements; -1: nothing came
};

}  // namespace posenc::cli
