#include "server/kserve/models.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/error.h"
#include "posenc/v1/service.pb.h"
#include "server/methods/answers.h"
#include "server/methods/rope_source.h"

namespace posenc::server {
namespace {

using google::protobuf::Message;
using Response = std::unique_ptr<Message>;

constexpr char kFloats[] = "FP32,FP16,BF16,FP64";
// Of heads that are rotated.
constexpr char kHeads[] = "FP32,FP16,BF16,FP64,FP8E4M3,FP8E5M2";
constexpr char kPositions[] = "INT64,INT32,FP32,FP64";

constexpr bool kOptional = true;
constexpr bool kRequired = false;

// Tensors in, tensors out.
template <typename Request, auto answer>
absl::StatusOr<TensorAnswer> OfTensors(const Message& request,
                                       const BorrowedTensors& borrowed,
                                       const MethodContext& context,
                                       Response* /*response*/) {
  return answer(static_cast<const Request&>(request), borrowed, context);
}

// Settings in, tensors and small fields out.
template <typename Request, typename NativeResponse, auto answer>
absl::StatusOr<TensorAnswer> OfSettings(const Message& request,
                                        const BorrowedTensors& /*borrowed*/,
                                        const MethodContext& context,
                                        Response* response) {
  auto native = std::make_unique<NativeResponse>();
  absl::StatusOr<TensorAnswer> tensors =
      answer(static_cast<const Request&>(request), context, native.get());
  *response = std::move(native);
  return tensors;
}

// BuildTable is two models, because tools ask for every output that a model
// has: this one has cos and sin.
absl::StatusOr<TensorAnswer> BuildTable(const v1::BuildTableRequest& request,
                                        const MethodContext& context,
                                        v1::BuildTableResponse* response) {
  if (request.has_absolute()) {
    return core::FieldInvalid(
        "absolute", "not here; the model build_encoding has one tensor");
  }
  if (request.layout() == v1::TABLE_LAYOUT_COMPLEX) {
    return core::FieldInvalid(
        "layout",
        "TABLE_LAYOUT_COMPLEX; the model build_encoding has one tensor");
  }
  return AnswerBuildTable(request, context, response);
}

absl::StatusOr<TensorAnswer> BuildEncoding(const v1::BuildTableRequest& request,
                                           const MethodContext& context,
                                           v1::BuildTableResponse* response) {
  if (request.has_rope() && request.layout() != v1::TABLE_LAYOUT_COMPLEX) {
    return core::FieldInvalid(
        "layout",
        absl::StrCat(v1::TableLayout_Name(request.layout()),
                     " has two tensors; the model build_table gives them"));
  }
  return AnswerBuildTable(request, context, response);
}

// Moves a list of numbers out of the response into a tensor of the answer.
template <typename T>
void MoveOut(int field, core::Dtype dtype,
             google::protobuf::RepeatedField<T>* numbers,
             std::vector<std::string>* bytes, TensorAnswer* answer) {
  answer->outputs.push_back({field, dtype, {numbers->size()}});
  bytes->emplace_back(reinterpret_cast<const char*>(numbers->data()),
                      numbers->size() * sizeof(T));
  numbers->Clear();
}

absl::StatusOr<TensorAnswer> ResolveRope(const v1::ResolveRopeRequest& request,
                                         const MethodContext& context,
                                         v1::ResolveRopeResponse* response) {
  const auto go_on = [] { return absl::OkStatus(); };
  const absl::Status resolved =
      AnswerResolveRope(request, context, go_on, response);
  if (!resolved.ok()) return resolved;
  TensorAnswer answer;
  std::vector<std::string> tensors;
  MoveOut(v1::ResolveRopeResponse::kInvFreqFieldNumber, core::Dtype::kFloat64,
          response->mutable_inv_freq(), &tensors, &answer);
  if (response->axis_of_pair_size() > 0) {
    MoveOut(v1::ResolveRopeResponse::kAxisOfPairFieldNumber,
            core::Dtype::kInt32, response->mutable_axis_of_pair(), &tensors,
            &answer);
  }
  answer.computation = std::make_unique<TileFunction>(
      1, [tensors = std::move(tensors)](std::int64_t /*tile*/,
                                        absl::Span<const OutputBuffer> outputs,
                                        StopCheck) {
        for (std::size_t i = 0; i < tensors.size(); ++i) {
          if (tensors[i].empty()) continue;
          std::memcpy(outputs[i].data(), tensors[i].data(), tensors[i].size());
        }
        return absl::OkStatus();
      });
  return answer;
}

constexpr ModelInput kApplyRopeInputs[] = {
    {{"q", kHeads, 4}, kOptional},
    {{"k", kHeads, 4}, kOptional},
    {{"positions", kPositions, 1}, kOptional}};
constexpr ModelOutput kApplyRopeOutputs[] = {
    {{"q", kHeads, 4}, v1::ApplyRopeResponse::kQFieldNumber},
    {{"k", kHeads, 4}, v1::ApplyRopeResponse::kKFieldNumber}};

constexpr ModelInput kRepositionInputs[] = {
    {{"k", kHeads, 4}, kRequired},
    {{"movement.old_positions", kPositions, 1}, kOptional},
    {{"movement.new_positions", kPositions, 1}, kOptional},
    {{"movement.shifts", kPositions, 1}, kOptional}};
constexpr ModelOutput kRepositionOutputs[] = {
    {{"k", kHeads, 4}, v1::RepositionResponse::kKFieldNumber}};

constexpr ModelInput kTableInputs[] = {
    {{"positions", kPositions, 1}, kOptional}};
constexpr ModelOutput kBuildTableOutputs[] = {
    {{"cos", kFloats, 2}, v1::BuildTableResponse::kCosFieldNumber},
    {{"sin", kFloats, 2}, v1::BuildTableResponse::kSinFieldNumber}};
constexpr ModelOutput kBuildEncodingOutputs[] = {
    {{"table", kFloats, 2}, v1::BuildTableResponse::kTableFieldNumber}};

constexpr ModelInput kAddEncodingInputs[] = {
    {{"x", kFloats, 3}, kRequired}, {{"positions", kPositions, 1}, kOptional}};
constexpr ModelOutput kAddEncodingOutputs[] = {
    {{"x", kFloats, 3}, v1::AddEncodingResponse::kXFieldNumber}};

constexpr ModelInput kScoreRelativeInputs[] = {{{"q", kFloats, 4}, kRequired},
                                               {{"k", kFloats, 4}, kRequired}};
constexpr ModelOutput kScoreRelativeOutputs[] = {
    {{"scores", kFloats, 4}, v1::ScoreRelativeResponse::kScoresFieldNumber}};

constexpr ModelOutput kBuildBiasOutputs[] = {
    {{"bias", "FP32,FP16,BF16,FP64,INT32", 3},
     v1::BuildBiasResponse::kTileFieldNumber}};

constexpr ModelOutput kBuildPositionsOutputs[] = {
    {{"positions", "INT32,FP32,FP64", 1},
     v1::Positions::kIdsFieldNumber,
     v1::BuildPositionsResponse::kPositionsFieldNumber}};

constexpr ModelInput kConvertPairingInputs[] = {
    {{"weight", kFloats, 2}, kRequired}};
constexpr ModelOutput kConvertPairingOutputs[] = {
    {{"weight", kFloats, 2}, v1::ConvertPairingResponse::kWeightFieldNumber}};

constexpr ModelOutput kResolveRopeOutputs[] = {
    {{"inv_freq", "FP64", 1}, v1::ResolveRopeResponse::kInvFreqFieldNumber},
    // Most encodings have none.
    {{"axis_of_pair", "INT32", 1},
     v1::ResolveRopeResponse::kAxisOfPairFieldNumber,
     0,
     false}};

template <typename Request>
Model MakeModel(absl::string_view name, absl::Span<const ModelInput> inputs,
                absl::Span<const ModelOutput> outputs,
                decltype(Model::answer) answer) {
  static const auto* const known = new KnownFields(*Request::descriptor());
  static const auto* const shared =
      new SharedPartsFinder(*Request::descriptor());
  const auto takes_long = [](const Message& request) {
    return ResolvesLong(static_cast<const Request&>(request));
  };
  return {name,       &Request::default_instance(),
          known,      shared,
          inputs,     outputs,
          takes_long, answer};
}

const std::vector<Model>& All() {
  static const auto* const all = new std::vector<Model>{
      MakeModel<v1::ApplyRopeRequest>(
          "apply_rope", kApplyRopeInputs, kApplyRopeOutputs,
          OfTensors<v1::ApplyRopeRequest, AnswerApplyRope>),
      MakeModel<v1::RepositionRequest>(
          "reposition", kRepositionInputs, kRepositionOutputs,
          OfTensors<v1::RepositionRequest, AnswerReposition>),
      MakeModel<v1::BuildTableRequest>(
          "build_table", kTableInputs, kBuildTableOutputs,
          OfSettings<v1::BuildTableRequest, v1::BuildTableResponse,
                     BuildTable>),
      MakeModel<v1::BuildTableRequest>(
          "build_encoding", kTableInputs, kBuildEncodingOutputs,
          OfSettings<v1::BuildTableRequest, v1::BuildTableResponse,
                     BuildEncoding>),
      MakeModel<v1::AddEncodingRequest>(
          "add_encoding", kAddEncodingInputs, kAddEncodingOutputs,
          OfTensors<v1::AddEncodingRequest, AnswerAddEncoding>),
      MakeModel<v1::ScoreRelativeRequest>(
          "score_relative", kScoreRelativeInputs, kScoreRelativeOutputs,
          OfTensors<v1::ScoreRelativeRequest, AnswerScoreRelative>),
      MakeModel<v1::BuildBiasRequest>(
          "build_bias", {}, kBuildBiasOutputs,
          OfSettings<v1::BuildBiasRequest, v1::BuildBiasResponse,
                     AnswerWholeBias>),
      MakeModel<v1::BuildPositionsRequest>(
          "build_positions", {}, kBuildPositionsOutputs,
          OfSettings<v1::BuildPositionsRequest, v1::BuildPositionsResponse,
                     AnswerBuildPositions>),
      MakeModel<v1::ConvertPairingRequest>(
          "convert_pairing", kConvertPairingInputs, kConvertPairingOutputs,
          OfTensors<v1::ConvertPairingRequest, AnswerConvertPairing>),
      MakeModel<v1::ResolveRopeRequest>(
          "resolve_rope", {}, kResolveRopeOutputs,
          OfSettings<v1::ResolveRopeRequest, v1::ResolveRopeResponse,
                     ResolveRope>),
  };
  return *all;
}

}  // namespace

absl::Span<const Model> Models() { return All(); }

absl::StatusOr<const Model*> FindModel(absl::string_view name,
                                       absl::string_view version) {
  for (const Model& model : All()) {
    if (model.name != name) continue;
    if (version.empty() || version == kModelVersion) return &model;
    return absl::NotFoundError(absl::StrCat("model_version: '", version,
                                            "'; models have version ",
                                            kModelVersion, " alone"));
  }
  const auto names =
      absl::StrJoin(All(), ", ", [](std::string* out, const Model& model) {
        absl::StrAppend(out, model.name);
      });
  return absl::NotFoundError(
      absl::StrCat("model_name: '", name, "'; the models are ", names));
}

}  // namespace posenc::server
