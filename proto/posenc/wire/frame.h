// Writes the protobuf framing around a tensor's bytes.
//
// split.h does the reverse: it takes the bytes of a tensor out of a serialized
// message. Client and server send tensors from memory outside of protobuf. They
// write the few bytes that come before the data, and give gRPC the data without
// a copy. The generated code would write the same bytes for a field of type
// posenc.v1.Tensor with `data`.
//
// 4 KiB of float32 in the shape [1, 1024], as field 14 of a message:
//
//   72 8b 20              field 14, length-delimited; 4107 bytes follow
//   |  08 01              | dtype (field 1, varint): DTYPE_FLOAT32
//   |  12 03 01 80 08     | shape (field 2, packed): 3 bytes, 1 and 1024
//   |  7a 80 20           | data (field 15, length-delimited); 4096 bytes
//   |  .. .. .. ..        | the elements
//
// AppendTensorFieldHeader writes the first four lines, the header. Nothing
// comes after the data. In the contract, tensors have the highest field numbers
// of a message, so a message ends with the bytes of its last tensor. An
// unspecified dtype, an empty shape and empty data are left out with their
// tags, as in protobuf.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/numeric/int128.h"
#include "absl/types/span.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc::wire {

// Size of one element in bytes; 0 if the contract has no such dtype.
std::size_t ElementBytes(v1::Dtype dtype);

// Size of all elements of a tensor: the product of `element_bytes` and the
// extents, which are not negative. For 2^96 bytes or more, the result is 2^96.
// This is over every limit, and a sum of such sizes does not overflow.
absl::uint128 DataBytes(std::size_t element_bytes,
                        absl::Span<const std::int64_t> shape);

// Size of a length-delimited field of `length` bytes, with its tag and length.
absl::uint128 FieldBytes(int field, absl::uint128 length);

// Size of a tensor field: its header and `data_bytes`. For a tensor with
// `values`, pass 8 bytes for each value as `data_bytes`: the header of `values`
// is as long as the header of `data` of the same size.
absl::uint128 TensorFieldBytes(int field, v1::Dtype dtype,
                               absl::Span<const std::int64_t> shape,
                               absl::uint128 data_bytes);

// Appends the tag and the length of a length-delimited field, whose `length`
// bytes come next.
void AppendFieldHeader(int field, std::uint64_t length, std::string* to);

// Appends everything of a tensor field except its data, which comes next.
// `data_bytes` need not agree with the shape, because the server checks this.
void AppendTensorFieldHeader(int field, v1::Dtype dtype,
                             absl::Span<const std::int64_t> shape,
                             std::uint64_t data_bytes, std::string* to);

}  // namespace posenc::wire
