// Vectors, replayed through the C++ client library. Tensors of requests become
// bytes in this program's memory, as in a caller.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "grpcpp/channel.h"
#include "posenc/client.h"
#include "posenc/v1/service.grpc.pb.h"
#include "tests/conformance/sent.h"
#include "tests/conformance/vectors.h"

namespace posenc::conformance {

// The client of 0.1.0 has no such settings (./run compatibility).
template <typename Request, typename Args>
void CopySaturation(const Request& request, Args* args) {
  if constexpr (requires { args->saturation; }) {
    args->saturation = request.saturation();
  }
}
template <typename Request, typename Args>
void CopyBlockFormat(const Request& request, Args* args) {
  if constexpr (requires { args->block_format; }) {
    args->block_format = request.block_format();
  }
}

// Replays vectors through a client. Requests that no view can express (elements
// that the dtype does not have) go through the generated stub, over the
// channel.
class Replay {
 public:
  Replay(Client client, const std::shared_ptr<grpc::Channel>& channel)
      : client_(std::move(client)),
        stub_(v1::PositionalEncodingService::NewStub(channel)) {}

  // Returns what is wrong with the answer to a vector, or "".
  std::string Run(const Vector& vector) {
    const std::string rpc = vector.content.at("rpc");
    if (rpc == "ResolveRope") {
      return Message<v1::ResolveRopeRequest>(
          vector, [&](auto& request) { return client_.ResolveRope(request); });
    }
    if (rpc == "AnalyzeRope") {
      return Message<v1::AnalyzeRopeRequest>(
          vector, [&](auto& request) { return client_.AnalyzeRope(request); });
    }
    if (rpc == "DiagnoseRope") return DiagnoseRope(vector, client_);
    if (rpc == "BuildPositions") {
      return Message<v1::BuildPositionsRequest>(vector, [&](auto& request) {
        return client_.BuildPositions(request);
      });
    }
    if (rpc == "BuildTable") {
      return Message<v1::BuildTableRequest>(
          vector, [&](auto& request) { return BuildTable(request); });
    }
    if (rpc == "BuildBias") {
      return Message<v1::BuildBiasRequest>(
          vector, [&](auto& request) { return BuildBias(request); });
    }
    if (rpc == "ApplyRope") {
      return Message<v1::ApplyRopeRequest>(
          vector, [&](auto& request) { return ApplyRope(request); });
    }
    if (rpc == "Reposition") {
      return Message<v1::RepositionRequest>(
          vector, [&](auto& request) { return Reposition(request); });
    }
    if (rpc == "AddEncoding") {
      return Message<v1::AddEncodingRequest>(
          vector, [&](auto& request) { return AddEncoding(request); });
    }
    if (rpc == "ScoreRelative") {
      return Message<v1::ScoreRelativeRequest>(
          vector, [&](auto& request) { return ScoreRelative(request); });
    }
    if (rpc == "ConvertPairing") {
      return Message<v1::ConvertPairingRequest>(
          vector, [&](auto& request) { return ConvertPairing(request); });
    }
    return absl::StrCat("unknown rpc ", rpc);
  }

 private:
  using Stub = v1::PositionalEncodingService::Stub;

  template <typename Request, typename Call>
  static std::string Message(const Vector& vector, const Call& call) {
    Request request;
    std::string failure;
    if (!ParseRequest(vector, &request, &failure)) return failure;
    const auto answer = call(request);
    const nlohmann::json& expected = vector.content.at("expect");
    if (answer.ok()) return CompareAnswer(*answer, expected);
    const absl::Status& status = answer.status();
    return CompareError(
        {CodeName(static_cast<int>(status.code())), ErrorReason(status),
         ErrorFact(status, "field"), std::string(status.message())},
        expected);
  }

  // The client of 0.1.0 does not have this call and its messages.
  template <typename AnyClient>
  static std::string DiagnoseRope(const Vector& vector,
                                  const AnyClient& client) {
    if constexpr (requires { &AnyClient::DiagnoseRope; }) {
      return Through(vector, client, &AnyClient::DiagnoseRope);
    } else {
      return "unknown rpc DiagnoseRope";
    }
  }
  template <typename AnyClient, typename Request, typename Response>
  static std::string Through(const Vector& vector, const AnyClient& client,
                             absl::StatusOr<Response> (AnyClient::*call)(
                                 const Request&, const CallOptions&) const) {
    return Message<Request>(
        vector, [&](auto& request) { return (client.*call)(request, {}); });
  }

  using Bytes = absl::Span<const char>;

  // Streams `tensors`, which are those of `args`, in random pieces. Returns
  // DATA_LOSS unless the answer has the same bytes as the answer to one
  // message. The client of 0.1.0 cannot stream, and gets OK.
  template <typename AnyClient, typename Args>
  absl::Status CheckStream(const AnyClient& client, Args* args,
                           const std::vector<TensorView*>& tensors,
                           const std::string& expected) {
    std::vector<std::string> pieces;
    for (TensorView* const tensor : tensors) {
      if (tensor == nullptr) continue;
      std::size_t elements = 1;
      for (const std::int64_t extent : tensor->shape) elements *= extent;
      const std::size_t element =
          elements == 0 ? 1 : tensor->bytes.size() / elements;
      for (Bytes left = std::exchange(tensor->bytes, {}); !left.empty();) {
        const Bytes piece =
            left.subspan(0, element * (1 + random_() % (1 + elements / 3)));
        pieces.emplace_back(piece.data(), piece.size());
        left.remove_prefix(piece.size());
      }
    }
    std::size_t sent = 0;
    std::string got;
    const auto next = [&]() -> absl::StatusOr<Bytes> {
      return sent == pieces.size() ? Bytes() : Bytes(pieces[sent++]);
    };
    const auto take = [&](Bytes bytes) {
      got.append(bytes.data(), bytes.size());
      return absl::OkStatus();
    };
    absl::Status status;
    if constexpr (requires { client.ApplyRopeStream(*args, next, take); }) {
      status = client.ApplyRopeStream(*args, next, take);
    } else if constexpr (requires {
                           client.RepositionStream(*args, next, take);
                         }) {
      status = client.RepositionStream(*args, next, take);
    } else {
      return absl::OkStatus();
    }
    if (!status.ok() || got == expected) return status;
    return absl::DataLossError("the stream's bytes are others");
  }

  // Makes the generated call, for requests that no view can express.
  template <typename Response, typename Request>
  absl::StatusOr<Response> Generated(
      grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                   Response*),
      const Request& request) {
    grpc::ClientContext context;
    Response response;
    const grpc::Status status =
        (stub_.get()->*method)(&context, request, &response);
    if (status.ok()) return response;
    // The error has the client library's form, for ErrorReason() and
    // ErrorFact().
    absl::Status error(static_cast<absl::StatusCode>(status.error_code()),
                       status.error_message());
    error.SetPayload("type.googleapis.com/google.rpc.Status",
                     absl::Cord(status.error_details()));
    return error;
  }

  absl::StatusOr<v1::BuildTableResponse> BuildTable(
      const v1::BuildTableRequest& request) {
    const absl::StatusOr<BuildTableResult> result = client_.BuildTable(request);
    if (!result.ok()) return result.status();
    v1::BuildTableResponse response;
    response.set_amplitude(result->amplitude);
    if (result->cos) *response.mutable_cos() = ToTensor(*result->cos);
    if (result->sin) *response.mutable_sin() = ToTensor(*result->sin);
    if (result->table) *response.mutable_table() = ToTensor(*result->table);
    return response;
  }

  absl::StatusOr<v1::BuildBiasResponse> BuildBias(
      const v1::BuildBiasRequest& request) {
    BiasTiles tiles(request);
    std::string wrong;
    const absl::Status status =
        client_.BuildBias(request, [&](const BiasTile& tile) {
          v1::BuildBiasResponse message;
          message.set_query_start(tile.query_start);
          message.set_key_start(tile.key_start);
          *message.mutable_tile() = ToTensor(tile.tensor);
          wrong = tiles.Add(message);
          return wrong.empty();
        });
    if (!wrong.empty()) return absl::DataLossError(wrong);
    if (!status.ok()) return status;
    return tiles.Whole();
  }

  absl::StatusOr<v1::ApplyRopeResponse> ApplyRope(
      const v1::ApplyRopeRequest& request) {
    SentTensors sent;
    ApplyRopeArgs args;
    args.rope = request.rope();
    args.positions = request.positions();
    args.layout = request.layout();
    args.direction = request.direction();
    if (request.has_query_scale()) args.query_scale = request.query_scale();
    CopySaturation(request, &args);
    if (request.has_q() && !(args.q = sent.View(request.q()))) {
      return Generated(&Stub::ApplyRope, request);
    }
    if (request.has_k() && !(args.k = sent.View(request.k()))) {
      return Generated(&Stub::ApplyRope, request);
    }
    const absl::StatusOr<ApplyRopeResult> result = client_.ApplyRope(args);
    if (!result.ok()) return result.status();
    v1::ApplyRopeResponse response;
    if (result->q) *response.mutable_q() = ToTensor(*result->q);
    if (result->k) *response.mutable_k() = ToTensor(*result->k);
    const absl::Status same =
        CheckStream(client_, &args,
                    {args.q ? &*args.q : nullptr, args.k ? &*args.k : nullptr},
                    response.q().data() + response.k().data());
    if (!same.ok()) return same;
    return response;
  }

  absl::StatusOr<v1::RepositionResponse> Reposition(
      const v1::RepositionRequest& request) {
    SentTensors sent;
    RepositionArgs args;
    args.old_rope = request.old_rope();
    if (request.has_new_rope()) args.new_rope = request.new_rope();
    args.movement = request.movement();
    args.layout = request.layout();
    if (request.has_cache()) args.cache = request.cache();
    CopySaturation(request, &args);
    CopyBlockFormat(request, &args);
    if (request.has_k() && !(args.k = sent.View(request.k()))) {
      return Generated(&Stub::Reposition, request);
    }
    const absl::StatusOr<TensorResult> result = client_.Reposition(args);
    if (!result.ok()) return result.status();
    v1::RepositionResponse response;
    *response.mutable_k() = ToTensor(result->tensor);
    const absl::Status same = CheckStream(
        client_, &args, {args.k ? &*args.k : nullptr}, response.k().data());
    if (!same.ok()) return same;
    return response;
  }

  absl::StatusOr<v1::AddEncodingResponse> AddEncoding(
      const v1::AddEncodingRequest& request) {
    SentTensors sent;
    AddEncodingArgs args;
    args.encoding = request.encoding();
    args.positions = request.positions();
    args.combination = request.combination();
    if (request.has_x_scale()) args.x_scale = request.x_scale();
    if (request.has_x() && !(args.x = sent.View(request.x()))) {
      return Generated(&Stub::AddEncoding, request);
    }
    const absl::StatusOr<TensorResult> result = client_.AddEncoding(args);
    if (!result.ok()) return result.status();
    v1::AddEncodingResponse response;
    *response.mutable_x() = ToTensor(result->tensor);
    return response;
  }

  absl::StatusOr<v1::ScoreRelativeResponse> ScoreRelative(
      const v1::ScoreRelativeRequest& request) {
    SentTensors sent;
    ScoreRelativeArgs args;
    args.score = request.score();
    args.query_start = request.query_start();
    args.key_start = request.key_start();
    args.dtype = request.dtype();
    if (request.has_q() && !(args.q = sent.View(request.q()))) {
      return Generated(&Stub::ScoreRelative, request);
    }
    if (request.has_k() && !(args.k = sent.View(request.k()))) {
      return Generated(&Stub::ScoreRelative, request);
    }
    const absl::StatusOr<TensorResult> result = client_.ScoreRelative(args);
    if (!result.ok()) return result.status();
    v1::ScoreRelativeResponse response;
    *response.mutable_scores() = ToTensor(result->tensor);
    return response;
  }

  absl::StatusOr<v1::ConvertPairingResponse> ConvertPairing(
      const v1::ConvertPairingRequest& request) {
    SentTensors sent;
    ConvertPairingArgs args;
    args.old_pairing = request.old_pairing();
    args.new_pairing = request.new_pairing();
    args.heads = request.heads();
    args.rotary_dim = request.rotary_dim();
    args.slice = request.slice();
    if (request.has_weight() && !(args.weight = sent.View(request.weight()))) {
      return Generated(&Stub::ConvertPairing, request);
    }
    const absl::StatusOr<TensorResult> result = client_.ConvertPairing(args);
    if (!result.ok()) return result.status();
    v1::ConvertPairingResponse response;
    *response.mutable_weight() = ToTensor(result->tensor);
    return response;
  }

  const Client client_;
  const std::unique_ptr<Stub> stub_;
  std::mt19937 random_{45};
};

}  // namespace posenc::conformance
