#include "server/memory/request_message.h"

#include <algorithm>

#include "grpc/slice.h"

namespace posenc::server {
namespace {

const char* Begin(const grpc::Slice& slice) {
  return reinterpret_cast<const char*>(slice.begin());
}

}  // namespace

RequestMessage::RequestMessage(std::vector<grpc::Slice> slices, bool exclusive,
                               Claimer* claimer)
    : slices_(std::move(slices)), exclusive_(exclusive), claimer_(claimer) {
  for (const grpc::Slice& slice : slices_) bytes_ += slice.size();
}

absl::InlinedVector<absl::Span<const char>, 4> RequestMessage::pieces() const {
  absl::InlinedVector<absl::Span<const char>, 4> pieces;
  for (const grpc::Slice& slice : slices_) {
    pieces.emplace_back(Begin(slice), slice.size());
  }
  return pieces;
}

std::string RequestMessage::Joined() const {
  std::string bytes;
  bytes.reserve(bytes_);
  for (const auto piece : pieces()) bytes.append(piece.data(), piece.size());
  return bytes;
}

bool RequestMessage::IsWritable(const core::ConstPieces& part) const {
  if (!exclusive_ || part.size() == 0) return false;
  const char* const first = part.From(0).data();
  return std::any_of(
      slices_.begin(), slices_.end(), [first](const grpc::Slice& slice) {
        return first >= Begin(slice) && first < Begin(slice) + slice.size();
      });
}

RequestMessage::WritableSlices RequestMessage::Writable(
    const core::ConstPieces& part) const {
  WritableSlices out;
  auto slice = slices_.begin();
  for (std::size_t at = 0; at < part.size();) {
    const absl::Span<const char> piece = part.From(at);
    while (piece.data() < Begin(*slice) ||
           piece.data() >= Begin(*slice) + slice->size()) {
      ++slice;
    }
    // A sub-slice shares the whole slice's memory, unless it is so small that
    // gRPC copies it into the slice object.
    const std::size_t begin = piece.data() - Begin(*slice);
    const grpc_slice whole = slice->c_slice();
    out.push_back(WritableSlice::Own(
        grpc::Slice(grpc_slice_sub(whole, begin, begin + piece.size()),
                    grpc::Slice::STEAL_REF)));
    grpc_slice_unref(whole);
    at += piece.size();
  }
  return out;
}

}  // namespace posenc::server
