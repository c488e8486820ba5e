#include "server/convert/tensor.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "posenc/wire/frame.h"
#include "server/base/errors.h"
#include "server/convert/fields.h"

namespace posenc::server {
namespace {

// The contract's limit on elements in `values`.
constexpr int kMaxValues = 65536;

// Bytes that a tile reads and writes: about a millisecond of rotation on a slow
// core, much more than the cost of handing a tile to a thread.
constexpr std::size_t kTileBytes = 512 << 10;

// Bytes that a tile in shared memory reads and writes. If a tensor is computed
// in place, a tile has 2 MiB, which are read and written. Tiles in shared
// memory are larger than kTileBytes, because no transfer hides the cost of
// starting a tile. Rotating 16 MiB in place was fastest with this size
// (docs/measurements/server.md).
constexpr std::size_t kSharedTileBytes = 4 << 20;

absl::Status CheckInteger(double value, core::Dtype dtype, int index) {
  const double limit = dtype == core::Dtype::kInt8    ? 128
                       : dtype == core::Dtype::kInt32 ? 2147483648.0
                                                      : 9223372036854775808.0;
  const std::string field = absl::StrCat("values[", index, "]");
  const std::string number = absl::StrFormat("%.17g", value);
  if (!(value == std::trunc(value))) {
    return core::FieldInvalid(field, number, " is not an integer; ",
                              core::DtypeName(dtype), " takes integers only");
  }
  if (!(value >= -limit && value < limit)) {
    return core::FieldInvalid(field, number, " does not fit ",
                              core::DtypeName(dtype));
  }
  return absl::OkStatus();
}

// FP8 cannot store numbers beyond its largest number, and E4M3 cannot store
// infinity. A request with `values` has no setting for saturation, so such
// values are refused.
absl::Status CheckFloat8(double value, core::Dtype dtype, int index) {
  unsigned char stored;
  core::StoreDouble(value, {dtype, {}, &stored}, 0);
  const double rounded = core::ElementAsDouble({dtype, {}, &stored}, 0);
  if (std::isfinite(rounded) || std::isnan(value) ||
      (std::isinf(value) && std::isinf(rounded))) {
    return absl::OkStatus();
  }
  return core::FieldInvalid(
      absl::StrCat("values[", index, "]"),
      absl::StrFormat("%.17g does not fit %s: its largest number is %d", value,
                      core::DtypeName(dtype),
                      dtype == core::Dtype::kFloat8E5m2 ? 57344 : 448));
}

absl::Status CheckValue(double value, core::Dtype dtype, int index) {
  if (core::IsFloating(dtype)) return absl::OkStatus();
  return core::IsFloat8(dtype) ? CheckFloat8(value, dtype, index)
                               : CheckInteger(value, dtype, index);
}

absl::Status SizeMismatch(absl::string_view field, core::Dtype dtype,
                          const core::Shape& shape, absl::uint128 expected,
                          absl::uint128 actual, absl::string_view fact) {
  return core::MakeError(
      absl::StatusCode::kInvalidArgument,
      core::ErrorReason::kTensorSizeMismatch, field,
      absl::StrCat(fact, "; shape ", core::ShapeToString(shape), " of ",
                   core::DtypeName(dtype), " takes ", ToString(expected),
                   " bytes"),
      {{"expectedBytes", ToString(expected)},
       {"actualBytes", ToString(actual)}});
}

// Checks that a tensor's elements, if there are any, come in exactly one form.
// `count` is the number of elements according to the shape.
absl::Status CheckForm(int values, std::size_t data_bytes, std::int64_t count,
                       const core::Shape& shape) {
  if (values > 0 && data_bytes > 0) {
    return core::FieldInvalid("values", values, " elements beside ", data_bytes,
                              " bytes of data; give one of the two");
  }
  if (values > kMaxValues) {
    return core::FieldInvalid("values", values, " elements; at most ",
                              kMaxValues, " may be written out, send data");
  }
  if (values == 0 && data_bytes == 0 && count > 0) {
    return core::FieldRequired(
        "data", absl::StrCat("data, values and shared are all unset; shape ",
                             core::ShapeToString(shape), " holds ", count,
                             " elements"));
  }
  return absl::OkStatus();
}

// Converts the tensor's `values` to its dtype, and stores them in `out`.
absl::Status StoreValues(const v1::Tensor& tensor, InputTensor* out) {
  const int values = tensor.values_size();
  const std::size_t bytes = values * core::DtypeSize(out->view.dtype);
  out->form = TensorForm::kValues;
  out->own = std::make_unique<char[]>(bytes);
  out->view.data = out->own.get();
  out->pieces = core::ConstPieces(out->own.get(), bytes);
  const core::TensorView elements = {out->view.dtype, out->view.shape,
                                     out->own.get()};
  for (int i = 0; i < values; ++i) {
    RETURN_IF_ERROR(CheckValue(tensor.values(i), elements.dtype, i));
    core::StoreDouble(tensor.values(i), elements, i);
  }
  return absl::OkStatus();
}

}  // namespace

const wire::BorrowedBytes* BorrowedTensors::Find(int field) const {
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    if (fields_[i] == field) return &bytes_[i];
  }
  return nullptr;
}

std::size_t BorrowedTensors::tile_bytes() const {
  return shared_ ? kSharedTileBytes : kTileBytes;
}

void InputTensor::Gather() {
  if (view.data != nullptr || pieces.size() == 0) return;
  own = std::make_unique_for_overwrite<char[]>(pieces.size());
  pieces.Read(0, pieces.size(), own.get());
  pieces = core::ConstPieces(own.get(), pieces.size());
  view.data = own.get();
}

absl::StatusOr<absl::uint128> TensorBytes(const v1::Tensor& tensor) {
  if (tensor.dtype() == v1::DTYPE_UNSPECIFIED) {
    return core::FieldRequired("dtype", "not given; every tensor needs one");
  }
  ASSIGN_OR_RETURN(const std::int64_t count,
                   core::ElementCount(ToVector(tensor.shape())));
  return absl::uint128(count) *
         core::DtypeSize(static_cast<core::Dtype>(tensor.dtype()));
}

absl::StatusOr<InputTensor> ReadTensor(const v1::Tensor& tensor,
                                       const wire::BorrowedBytes* data) {
  if (tensor.dtype() == v1::DTYPE_UNSPECIFIED) {
    return core::FieldRequired("dtype", "not given; every tensor needs one");
  }
  if (tensor.has_shared() && data == nullptr) {
    return core::FieldInvalid("shared", "not for this tensor; send its data");
  }
  InputTensor out;
  out.view.dtype = static_cast<core::Dtype>(tensor.dtype());
  out.view.shape = ToVector(tensor.shape());
  ASSIGN_OR_RETURN(std::int64_t count, core::ElementCount(out.view.shape));

  const std::size_t size = core::DtypeSize(out.view.dtype);
  const absl::uint128 expected = absl::uint128(count) * size;
  const std::size_t data_bytes =
      data != nullptr ? data->size : tensor.data().size();
  const int values = tensor.values_size();
  const auto mismatch = [&](absl::string_view field, std::size_t actual,
                            absl::string_view fact) {
    return SizeMismatch(field, out.view.dtype, out.view.shape, expected, actual,
                        fact);
  };
  RETURN_IF_ERROR(CheckForm(values, data_bytes, count, out.view.shape));
  if (values > 0) {
    if (count != values) {
      return mismatch(
          "values", values * size,
          absl::StrCat(values, " elements (", values * size, " bytes)"));
    }
    RETURN_IF_ERROR(StoreValues(tensor, &out));
    return out;
  }
  if (expected != data_bytes) {
    return mismatch("data", data_bytes, absl::StrCat(data_bytes, " bytes"));
  }
  core::ConstPieces::List pieces;
  if (data == nullptr) {
    pieces.emplace_back(tensor.data().data(), data_bytes);
  } else {
    pieces.assign(data->pieces.begin(), data->pieces.end());
  }
  if (pieces.size() == 1) out.view.data = pieces[0].data();
  out.pieces = core::ConstPieces(std::move(pieces));
  return out;
}

absl::StatusOr<core::ConstTensorView> ReadView(const v1::Tensor& tensor,
                                               OwnedElements* owned) {
  ASSIGN_OR_RETURN(InputTensor read, ReadTensor(tensor));
  if (read.own != nullptr) owned->push_back(std::move(read.own));
  return std::move(read.view);
}

absl::StatusOr<InputTensor> ReadRequiredTensor(
    absl::string_view field, bool given, const v1::Tensor& tensor,
    const wire::BorrowedBytes* data) {
  if (!given) return core::FieldRequired(field, "not given");
  absl::StatusOr<InputTensor> read = ReadTensor(tensor, data);
  if (!read.ok()) return core::Prefixed(field, read.status());
  return read;
}

absl::Status ReadTensorFields(absl::string_view path,
                              const google::protobuf::Message& message,
                              std::initializer_list<TensorField> fields,
                              OwnedElements* owned) {
  core::Faults faults;
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  for (const auto& [name, view] : fields) {
    const google::protobuf::FieldDescriptor* const field =
        message.GetDescriptor()->FindFieldByName(name);
    if (!reflection.HasField(message, field)) continue;
    // The cast is safe, because the message is of a generated class.
    const absl::StatusOr<core::ConstTensorView> read = ReadView(
        static_cast<const v1::Tensor&>(reflection.GetMessage(message, field)),
        owned);
    faults.Note(core::Prefixed(path, core::Prefixed(name, read.status())));
    if (read.ok()) *view = *read;
  }
  return faults.status();
}

absl::Status CheckLayout(v1::Layout layout) {
  if (layout != v1::LAYOUT_UNSPECIFIED) return absl::OkStatus();
  return core::FieldRequired(
      "layout",
      "not given; the wrong one of BSHD and BHSD would not be noticed");
}

absl::uint128 TensorFieldBytes(int field, core::Dtype dtype,
                               const core::Shape& shape, TensorForm form) {
  const std::size_t element =
      form == TensorForm::kValues ? sizeof(double) : core::DtypeSize(dtype);
  return wire::TensorFieldBytes(field, static_cast<v1::Dtype>(dtype), shape,
                                wire::DataBytes(element, shape));
}

v1::Tensor SpelledOut(const core::ConstTensorView& elements) {
  v1::Tensor tensor;
  tensor.set_dtype(static_cast<v1::Dtype>(elements.dtype));
  std::int64_t count = 1;
  for (const std::int64_t extent : elements.shape) {
    tensor.add_shape(extent);
    count *= extent;
  }
  tensor.mutable_values()->Reserve(static_cast<int>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    tensor.add_values(core::ElementAsDouble(elements, i));
  }
  return tensor;
}

}  // namespace posenc::server
