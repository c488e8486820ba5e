// Writes the protobuf framing around a tensor's bytes.
//
// split.h takes the bytes of a tensor out of a serialized message; this is the
// other direction. Both sides send tensors from memory that protobuf never
// sees: they write the few bytes that belong before the data, and hand gRPC
// the data as it lies. The result is what the generated code would have
// written for a field of type posenc.v1.Tensor with `data`, byte for byte.
//
// 4 KiB of float32 in the shape [1, 1024], as field 14 of a message:
//
//   72 8b 20              field 14, length-delimited; 4107 bytes follow
//   |  08 01              | dtype (field 1, varint): DTYPE_FLOAT32
//   |  12 03 01 80 08     | shape (field 2, packed): 3 bytes, 1 and 1024
//   |  7a 80 20           | data (field 15, length-delimited); 4096 bytes
//   |  .. .. .. ..        | the elements
//
// The first four lines are the header, which AppendTensorFieldHeader writes.
// No framing stands after the data, so a message that ends with its tensors
// (the contract gives them the highest field numbers) ends with their bytes.
// As protobuf has it, an unspecified dtype, an empty shape and empty data are
// left out, their tags included.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/numeric/int128.h"
#include "absl/types/span.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc::wire {

// Bytes of one element; 0 if the contract has no such dtype.
std::size_t ElementBytes(v1::Dtype dtype);

// Bytes of all elements of a tensor: the product of the extents, which are not
// negative, and of `element_bytes`. Nothing is allocated here, so a size may be
// asked for that no machine has: from 2^96 bytes on the result is 2^96, which
// is over every limit and leaves room for sums.
absl::uint128 DataBytes(std::size_t element_bytes,
                        absl::Span<const std::int64_t> shape);

// Bytes of a length-delimited field with its tag and its length.
absl::uint128 FieldBytes(int field, absl::uint128 length);

// Bytes of a tensor field: the header below and `data_bytes`. `values`, which
// are 8 bytes each, take as many as `data` of the same length.
absl::uint128 TensorFieldBytes(int field, v1::Dtype dtype,
                               absl::Span<const std::int64_t> shape,
                               absl::uint128 data_bytes);

// Appends the tag and the length of a length-delimited field, whose `length`
// bytes come next.
void AppendFieldHeader(int field, std::uint64_t length, std::string* to);

// Appends what stands before the data of a tensor field. `data_bytes` need not
// be what the shape takes: what a caller sends is for the server to judge.
void AppendTensorFieldHeader(int field, v1::Dtype dtype,
                             absl::Span<const std::int64_t> shape,
                             std::uint64_t data_bytes, std::string* to);

}  // namespace posenc::wire
