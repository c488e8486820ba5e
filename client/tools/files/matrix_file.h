// A file that receives a bias tile by tile, so that the matrix need not fit
// into memory.
//
// Both formats, .npy and .safetensors, store the matrix [heads, queries, keys]
// as contiguous bytes after a header. The first tile determines the length of
// the header. A row of a tile is contiguous in the file, so a tile of q queries
// and h heads needs at most q * h writes, each at its own offset. Tiles may
// come in any order.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/tools/files/file.h"
#include "posenc/client.h"

namespace posenc::cli {

class MatrixFile {
 public:
  // Makes an .npy file, or a .safetensors file with one tensor of this name.
  // `path` must not be "-". The file has this path only after Commit().
  static absl::StatusOr<MatrixFile> Create(const std::string& path,
                                           const std::string& name);

  // Writes a tile of the answer to `request`. Returns INTERNAL if the tile does
  // not fit the request or the first tile, so that a faulty server cannot cause
  // writes at other offsets.
  absl::Status Write(const v1::BuildBiasRequest& request, const BiasTile& tile);

  // Completes the file. Returns INTERNAL if tiles are missing.
  absl::Status Commit();

  // The dtype and the shape of the matrix, without bytes. They are known after
  // the first tile.
  const TensorView& matrix() const { return matrix_; }

 private:
  MatrixFile(std::string path, std::string name, OutputFile file)
      : path_(std::move(path)),
        name_(std::move(name)),
        file_(std::move(file)) {}

  // Takes the dtype and the number of heads from the first tile, and writes the
  // header.
  absl::Status Start(const v1::BuildBiasRequest& request, const BiasTile& tile);

  std::string path_;
  std::string name_;
  OutputFile file_;
  TensorView matrix_;  // without bytes
  std::int64_t data_start_ = 0;
  std::int64_t missing_ = -1;  // elements; -1: no tile has come
};

}  // namespace posenc::cli
