#include "server/wire/plan.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "grpc/slice.h"
#include "posenc/v1/tensor.pb.h"
#include "posenc/wire/varint.h"

namespace posenc::server {
namespace {

// About a millisecond of rotation on a slow core, and large against the cost of
// handing it to a thread.
constexpr std::size_t kTileBytes = 256 << 10;

// Most responses have one or two tensors, each in a slice or two.
template <typename T>
using Few = absl::InlinedVector<T, 2>;

// Up to here a response is put together in one slice: copying it costs less
// than what gRPC does for each slice.
constexpr std::size_t kOneSliceBytes = 16 << 10;

// Where the bytes of one output are.
struct Placed {
  std::string header;
  // Of gRPC: their bytes may lie in the objects themselves, which therefore
  // stay where they are.
  Few<grpc::Slice> slices;
  core::Pieces input, output;
  std::int64_t rows_per_tile = 1;
  std::int64_t tiles = 0;
};

char* Begin(const grpc::Slice& slice) {
  return const_cast<char*>(reinterpret_cast<const char*>(slice.begin()));
}

core::Pieces PiecesOf(const Few<grpc::Slice>& slices) {
  core::Pieces::List pieces;
  for (const grpc::Slice& slice : slices) {
    pieces.emplace_back(Begin(slice), slice.size());
  }
  return core::Pieces(std::move(pieces));
}

// Slices of the request's that hold these bytes.
Few<grpc::Slice> SliceUp(const core::Pieces& input,
                         const std::vector<grpc::Slice>& request) {
  Few<grpc::Slice> slices;
  auto from = request.begin();
  for (std::size_t at = 0; at < input.size();) {
    const absl::Span<char> piece = input.From(at);
    while (piece.data() < Begin(*from) ||
           piece.data() >= Begin(*from) + from->size()) {
      ++from;
    }
    const std::size_t begin = piece.data() - Begin(*from);
    const grpc_slice whole = from->c_slice();
    slices.emplace_back(grpc_slice_sub(whole, begin, begin + piece.size()),
                        grpc::Slice::STEAL_REF);
    grpc_slice_unref(whole);
    at += piece.size();
  }
  return slices;
}

std::size_t OutputBytes(const OutputTensor& output) {
  std::size_t bytes = core::DtypeSize(output.dtype);
  for (const std::int64_t extent : output.shape) bytes *= extent;
  return bytes;
}

// What stands before the bytes of an output.
std::string Header(const OutputTensor& output, std::size_t bytes) {
  std::string header =
      TensorFieldHeader(output.field, output.dtype, output.shape);
  if (output.within == 0) return header;
  std::string outer(1, static_cast<char>(output.within << 3 | 2));
  wire::AppendVarint(header.size() + bytes, &outer);
  return outer + header;
}

// Small tensors that are written out.
std::unique_ptr<PlannedResponse> SpellResponse(const TensorCall& call,
                                               std::string fields) {
  for (const OutputTensor& output : call.outputs) {
    v1::Tensor tensor;
    const core::TensorView room =
        AllocateTensor(output.dtype, output.shape, &tensor);
    if (output.map != nullptr) {
      core::MapRows(*output.map, output.input,
                    core::Pieces(room.data, OutputBytes(output)), 0,
                    output.map->rows());
    }
    if (output.form == TensorForm::kValues) SpellOut(&tensor);
    AppendTensorField(output.field, tensor, &fields);
  }
  return ReadyResponse(fields);
}

class Ready final : public PlannedResponse {
 public:
  explicit Ready(const std::string& bytes) : slice_(bytes) {}
  absl::Status Run(std::int64_t /*tile*/, StopCheck /*stop*/) override {
    return absl::OkStatus();
  }
  void Finish(grpc::ByteBuffer* response) override {
    grpc::ByteBuffer(&slice_, 1).Swap(response);
  }

 private:
  const grpc::Slice slice_;
};

// A response of tensors that are computed where gRPC sends them from.
class TensorResponse final : public PlannedResponse {
 public:
  TensorResponse(TensorCall call, std::shared_ptr<const void> request,
                 const RequestMessage* message, std::string fields)
      : call_(std::move(call)),
        request_(std::move(request)),
        message_(message),
        fields_(std::move(fields)),
        placed_(call_.outputs.size()) {
    tiles_ = call_.parts;
    for (const OutputTensor& output : call_.outputs) {
      const std::size_t bytes = OutputBytes(output);
      work_bytes_ += bytes + output.input.size();
      if (!InPlace(output)) room_ += static_cast<std::int64_t>(bytes);
    }
  }

  // Where all of it, of `total` bytes, is small, and rows are mapped: they may
  // have any alignment.
  void PlaceInOne(std::size_t total) {
    room_ = 0;
    whole_ = grpc::Slice(grpc_slice_malloc(total), grpc::Slice::STEAL_REF);
    char* at = Begin(*whole_);
    const auto append = [&at](const std::string& text) {
      at = std::copy(text.begin(), text.end(), at);
    };
    append(fields_);
    for (std::size_t i = 0; i < placed_.size(); ++i) {
      const OutputTensor& output = call_.outputs[i];
      const std::size_t bytes = OutputBytes(output);
      append(Header(output, bytes));
      placed_[i].input = output.input;
      placed_[i].output = core::Pieces(at, bytes);
      Divide(output, at, &placed_[i]);
      at += bytes;
    }
  }

  absl::Status Place(ResponseMemory* memory) override {
    if (whole_) return absl::OkStatus();
    for (std::size_t i = 0; i < placed_.size(); ++i) {
      const OutputTensor& output = call_.outputs[i];
      const std::size_t bytes = OutputBytes(output);
      Placed& placed = placed_[i];
      placed.header = Header(output, bytes);
      if (InPlace(output)) {
        placed.slices = SliceUp(output.input, message_->slices);
        placed.input = placed.output = PiecesOf(placed.slices);
      } else if (bytes > 0) {
        absl::StatusOr<grpc::Slice> slice = memory->Allocate(bytes);
        if (!slice.ok()) return slice.status();
        room_ -= static_cast<std::int64_t>(bytes);
        placed.slices.push_back(*std::move(slice));
        placed.output = PiecesOf(placed.slices);
        placed.input = output.input;
      }
      Divide(output, bytes > 0 ? Begin(placed.slices[0]) : nullptr, &placed);
    }
    return absl::OkStatus();
  }

  absl::Status Run(std::int64_t tile, StopCheck stop) override {
    for (std::size_t i = 0; i < placed_.size(); ++i) {
      const Placed& placed = placed_[i];
      if (tile >= placed.tiles) {
        tile -= placed.tiles;
        continue;
      }
      const core::RowMap& map = *call_.outputs[i].map;
      const std::int64_t first = tile * placed.rows_per_tile;
      core::MapRows(map, placed.input, placed.output, first,
                    std::min(placed.rows_per_tile, map.rows() - first));
      return absl::OkStatus();
    }
    return call_.compute(tile, views_, stop);
  }

  void Finish(grpc::ByteBuffer* response) override {
    if (whole_) {
      grpc::ByteBuffer(&*whole_, 1).Swap(response);
      return;
    }
    std::vector<grpc::Slice> slices;
    if (!fields_.empty()) slices.emplace_back(fields_);
    for (const Placed& placed : placed_) {
      slices.emplace_back(placed.header);
      for (const grpc::Slice& slice : placed.slices) slices.push_back(slice);
    }
    grpc::ByteBuffer(slices.data(), slices.size()).Swap(response);
  }

 private:
  // Whether its rows are written over those that they are made from.
  bool InPlace(const OutputTensor& output) const {
    return output.map != nullptr && output.map->in_place() &&
           message_ != nullptr && message_->exclusive &&
           output.input.size() > 0;
  }

  // Into tiles. data: of an output in one piece.
  void Divide(const OutputTensor& output, void* data, Placed* placed) {
    if (call_.compute) views_.push_back({output.dtype, output.shape, data});
    const core::RowMap* const map = output.map.get();
    if (map == nullptr || map->rows() == 0) return;
    const std::size_t row = map->in_bytes() + map->out_bytes();
    placed->rows_per_tile = std::max<std::int64_t>(
        1, 2 * kTileBytes / std::max<std::size_t>(row, 1));
    placed->tiles =
        (map->rows() + placed->rows_per_tile - 1) / placed->rows_per_tile;
    tiles_ += placed->tiles;
  }

  const TensorCall call_;
  const std::shared_ptr<const void> request_;
  const RequestMessage* const message_;
  const std::string fields_;
  Few<Placed> placed_;
  std::optional<grpc::Slice> whole_;
  std::vector<core::TensorView> views_;  // of outputs in one piece
};

}  // namespace

std::unique_ptr<PlannedResponse> ReadyResponse(const std::string& bytes) {
  return std::make_unique<Ready>(bytes);
}

absl::StatusOr<std::unique_ptr<PlannedResponse>> PlanResponse(
    TensorCall call, std::shared_ptr<const void> request,
    const RequestMessage* message, std::string fields, std::int64_t limit) {
  absl::uint128 total = fields.size();
  bool spelled = false;
  for (const OutputTensor& output : call.outputs) {
    absl::uint128 bytes =
        TensorFieldBytes(output.dtype, output.shape, output.form);
    if (output.within != 0) {
      bytes += 1 + wire::VarintBytes(absl::Uint128Low64(bytes));
    }
    total += bytes;
    spelled |= output.form == TensorForm::kValues;
  }
  const absl::Status size = CheckResponse(total, limit);
  if (!size.ok()) return size;
  // Who writes elements out sends few of them, to operations with a map.
  if (spelled) return SpellResponse(call, std::move(fields));
  const bool computed = static_cast<bool>(call.compute);
  auto response = std::make_unique<TensorResponse>(
      std::move(call), std::move(request), message, std::move(fields));
  if (total <= kOneSliceBytes && !computed) {
    response->PlaceInOne(static_cast<std::size_t>(absl::Uint128Low64(total)));
    return response;
  }
  return response;
}

}  // namespace posenc::server
