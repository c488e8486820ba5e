#include "client/tools/files/matrix_file.h"

#include "absl/strings/str_cat.h"
#include "client/tools/check/element.h"
#include "client/tools/files/npy.h"
#include "client/tools/files/safetensors.h"
#include "client/tools/files/status.h"
#include "client/tools/files/tensor_file.h"
#include "posenc/wire/frame.h"

namespace posenc::cli {

absl::StatusOr<MatrixFile> MatrixFile::Create(const std::string& path,
                                              const std::string& name) {
  RETURN_IF_ERROR(CheckOut(path));
  ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  return MatrixFile(path, name, std::move(file));
}

absl::Status MatrixFile::Start(const v1::BuildBiasRequest& request,
                               const BiasTile& tile) {
  matrix_.dtype = tile.tensor.dtype;
  matrix_.shape = {tile.tensor.shape[0], request.query_length(),
                   request.key_length()};
  missing_ = check::ElementCount(matrix_.shape);
  const std::int64_t size =
      static_cast<std::int64_t>(wire::ElementBytes(matrix_.dtype));
  if (missing_ < 0 || missing_ > INT64_MAX / size) {
    return FileError(
        path_, absl::StrCat("cannot hold ", check::ShapeText(matrix_.shape)));
  }
  std::string header;
  if (IsNpyOutput(path_)) {
    ASSIGN_OR_RETURN(header, InFile(path_, NpyHeader(matrix_)));
  } else {
    // The pointer is null, because the header needs only the number of bytes.
    const TensorView sized{matrix_.dtype,
                           matrix_.shape,
                           {static_cast<const char*>(nullptr),
                            static_cast<std::size_t>(missing_ * size)}};
    ASSIGN_OR_RETURN(const auto entry, InFile(path_, FromTensor(name_, sized)));
    header = SafetensorsHeader({{entry}, {}});
  }
  data_start_ = static_cast<std::int64_t>(header.size());
  return file_.WriteAt(0, absl::MakeConstSpan(header));
}

absl::Status MatrixFile::Write(const v1::BuildBiasRequest& request,
                               const BiasTile& tile) {
  const TensorView& view = tile.tensor;
  const std::int64_t row = tile.query_start - request.query_start();
  const std::int64_t column = tile.key_start - request.key_start();
  const std::int64_t size =
      static_cast<std::int64_t>(wire::ElementBytes(view.dtype));
  const bool fits =
      view.shape.size() == 3 && size > 0 && row >= 0 && column >= 0 &&
      view.shape[1] <= request.query_length() - row &&
      view.shape[2] <= request.key_length() - column &&
      check::ElementCount(view.shape) ==
          static_cast<std::int64_t>(view.bytes.size()) / size &&
      (missing_ < 0 ||
       (view.shape[0] == matrix_.shape[0] && view.dtype == matrix_.dtype));
  if (!fits) {
    return absl::InternalError(absl::StrCat(
        "the server answered with a tile ", check::ShapeText(view.shape),
        " at query ", tile.query_start, ", key ", tile.key_start,
        ", which does not fit"));
  }
  if (missing_ < 0) {
    RETURN_IF_ERROR(Start(request, tile));
  }
  const std::int64_t queries = view.shape[1], keys = view.shape[2];
  // If a tile has whole rows of the matrix, the rows of a head are contiguous
  // in the file and are written at once.
  const std::int64_t rows = keys == request.key_length() ? queries : 1;
  const std::int64_t run = rows * keys * size;
  absl::Span<const char> rest = view.bytes;
  for (std::int64_t h = 0; h < view.shape[0]; ++h) {
    for (std::int64_t i = 0; i < queries; i += rows) {
      const std::int64_t at =
          ((h * request.query_length() + row + i) * request.key_length() +
           column) *
          size;
      RETURN_IF_ERROR(file_.WriteAt(
          data_start_ + at, rest.subspan(0, static_cast<std::size_t>(run))));
      rest.remove_prefix(static_cast<std::size_t>(run));
    }
  }
  missing_ -= check::ElementCount(view.shape);
  return absl::OkStatus();
}

absl::Status MatrixFile::Commit() {
  if (missing_ != 0) {
    return absl::InternalError("the server left out a part of the bias");
  }
  return file_.Commit();
}

}  // namespace posenc::cli
