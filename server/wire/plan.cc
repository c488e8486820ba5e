#include "server/wire/plan.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "grpc/slice.h"
#include "posenc/v1/tensor.pb.h"
#include "posenc/wire/varint.h"

namespace posenc::server {
namespace {

// About a millisecond of rotation on a slow core, and large against the cost of
// handing it to a thread.
constexpr std::size_t kTileBytes = 256 << 10;

// Where the bytes of one output are.
struct Placed {
  // Of gRPC: their bytes may lie in the objects themselves, which therefore
  // stay where they are.
  std::vector<grpc::Slice> slices;
  core::Pieces input, output;
  std::int64_t rows_per_tile = 1;
  std::int64_t tiles = 0;
};

struct Response {
  TensorCall call;
  std::shared_ptr<const RequestMessage> message;  // that inputs point into
  std::vector<std::string> headers;
  std::vector<Placed> placed;
  std::vector<core::TensorView> views;  // of outputs in one piece
};

char* Begin(const grpc::Slice& slice) {
  return const_cast<char*>(reinterpret_cast<const char*>(slice.begin()));
}

core::Pieces PiecesOf(const std::vector<grpc::Slice>& slices) {
  std::vector<absl::Span<char>> pieces;
  pieces.reserve(slices.size());
  for (const grpc::Slice& slice : slices) {
    pieces.emplace_back(Begin(slice), slice.size());
  }
  return core::Pieces(std::move(pieces));
}

// Slices of the request's that hold these bytes.
std::vector<grpc::Slice> SliceUp(const core::Pieces& input,
                                 const std::vector<grpc::Slice>& request) {
  std::vector<grpc::Slice> slices;
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
absl::StatusOr<PlannedResponse> SpellResponse(const TensorCall& call,
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
  PlannedResponse planned;
  planned.bytes = fields.size();
  planned.finish = [slice = grpc::Slice(fields)] {
    return grpc::ByteBuffer(&slice, 1);
  };
  return planned;
}

}  // namespace

absl::StatusOr<PlannedResponse> PlanResponse(
    TensorCall call, std::shared_ptr<const RequestMessage> message,
    std::string fields, std::int64_t limit, ResponseMemory* memory) {
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

  auto response = std::make_shared<Response>();
  response->call = std::move(call);
  response->message = std::move(message);
  const RequestMessage* const request = response->message.get();
  PlannedResponse planned;
  planned.bytes = static_cast<std::int64_t>(absl::Uint128Low64(total));
  response->placed.resize(response->call.outputs.size());
  std::int64_t tiles = response->call.parts;
  for (std::size_t i = 0; i < response->placed.size(); ++i) {
    OutputTensor& output = response->call.outputs[i];
    Placed& placed = response->placed[i];
    const std::size_t bytes = OutputBytes(output);
    response->headers.push_back(Header(output, bytes));
    planned.work_bytes += bytes + output.input.size();
    const core::RowMap* const map = output.map.get();
    if (map != nullptr && map->in_place() && bytes > 0 && request != nullptr &&
        request->exclusive) {
      placed.slices = SliceUp(output.input, request->slices);
      placed.input = placed.output = PiecesOf(placed.slices);
    } else if (bytes > 0) {
      absl::StatusOr<grpc::Slice> slice = memory->Allocate(bytes);
      if (!slice.ok()) return slice.status();
      placed.slices.push_back(*std::move(slice));
      placed.output = PiecesOf(placed.slices);
      placed.input = output.input;
    }
    response->views.push_back({output.dtype, output.shape,
                               bytes > 0 ? Begin(placed.slices[0]) : nullptr});
    if (map == nullptr || map->rows() == 0) continue;
    const std::size_t row = map->in_bytes() + map->out_bytes();
    placed.rows_per_tile = std::max<std::int64_t>(
        1, 2 * kTileBytes / std::max<std::size_t>(row, 1));
    placed.tiles =
        (map->rows() + placed.rows_per_tile - 1) / placed.rows_per_tile;
    tiles += placed.tiles;
  }
  planned.tiles = tiles;
  planned.run = [response](std::int64_t tile, StopCheck stop) -> absl::Status {
    for (std::size_t i = 0; i < response->placed.size(); ++i) {
      const Placed& placed = response->placed[i];
      if (tile >= placed.tiles) {
        tile -= placed.tiles;
        continue;
      }
      const core::RowMap& map = *response->call.outputs[i].map;
      const std::int64_t first = tile * placed.rows_per_tile;
      core::MapRows(map, placed.input, placed.output, first,
                    std::min(placed.rows_per_tile, map.rows() - first));
      return absl::OkStatus();
    }
    return response->call.compute(tile, response->views, stop);
  };
  planned.finish = [response, fields = std::move(fields)] {
    std::vector<grpc::Slice> slices;
    if (!fields.empty()) slices.emplace_back(fields);
    for (std::size_t i = 0; i < response->placed.size(); ++i) {
      slices.emplace_back(response->headers[i]);
      for (const grpc::Slice& slice : response->placed[i].slices) {
        slices.push_back(slice);
      }
    }
    return grpc::ByteBuffer(slices.data(), slices.size());
  };
  return planned;
}

}  // namespace posenc::server
