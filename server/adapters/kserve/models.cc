#include "server/adapters/kserve/models.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "posenc/v1/service.pb.h"
#include "server/methods/takes_long.h"

namespace posenc::server {
namespace {

using google::protobuf::Message;

constexpr char kFloats[] = "FP32,FP16,BF16,FP64";
// Datatypes of tensors to rotate.
constexpr char kHeads[] = "FP32,FP16,BF16,FP64,FP8E4M3,FP8E5M2";
constexpr char kMovedHeads[] = "FP32,FP16,BF16,FP64,FP8E4M3,FP8E5M2,INT8";
constexpr char kPositions[] = "INT64,INT32,FP32,FP64";

// Makes a model from an RPC.
template <auto answer, typename Request>
Model MakeBy(absl::StatusOr<TensorAnswer> (*)(const Request&,
                                              const MethodContext&),
             absl::string_view name, std::vector<ModelInput> inputs,
             std::vector<ModelOutput> outputs) {
  const auto takes_long = [](const Message& request) {
    return TakesLong(static_cast<const Request&>(request));
  };
  const auto call = [](const Message& request, const MethodContext& context) {
    return answer(static_cast<const Request&>(request), context);
  };
  return {name,
          &Request::default_instance(),
          &KnownFields::Of<Request>(),
          std::move(inputs),
          std::move(outputs),
          takes_long,
          call};
}
template <auto answer>
Model MakeModel(absl::string_view name, std::vector<ModelInput> inputs,
                std::vector<ModelOutput> outputs) {
  return MakeBy<answer>(answer, name, std::move(inputs), std::move(outputs));
}

// Moves a list of numbers from the response to a tensor of the answer.
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
                                         const MethodContext& context) {
  const auto go_on = [] { return absl::OkStatus(); };
  auto response = std::make_shared<v1::ResolveRopeResponse>();
  RETURN_IF_ERROR(AnswerResolveRope(request, context, go_on, response.get()));
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
  answer.response = std::move(response);
  return answer;
}

std::vector<Model> MakeModels() {
  using Table = v1::BuildTableResponse;
  using Positions = v1::BuildPositionsResponse;
  using Resolved = v1::ResolveRopeResponse;
  const ModelInput positions = {{"positions", kPositions, 1}, true};
  return {
      MakeModel<AnswerApplyRope>(
          "apply_rope",
          {{{"q", kHeads, 4}, true}, {{"k", kHeads, 4}, true}, positions},
          {{{"q", kHeads, 4}, v1::ApplyRopeResponse::kQFieldNumber},
           {{"k", kHeads, 4}, v1::ApplyRopeResponse::kKFieldNumber}}),
      MakeModel<AnswerReposition>(
          "reposition",
          {{{"k", kMovedHeads, 4}, false},
           {{"movement.old_positions", kPositions, 1}, true},
           {{"movement.new_positions", kPositions, 1}, true},
           {{"movement.shifts", kPositions, 1}, true}},
          {{{"k", kMovedHeads, 4}, v1::RepositionResponse::kKFieldNumber}}),
      // BuildTable has two models, because tools request every output of a
      // model, and no table has all three outputs.
      MakeModel<AnswerBuildTable>(
          "build_table", {positions},
          {{{"cos", kFloats, 2}, Table::kCosFieldNumber},
           {{"sin", kFloats, 2}, Table::kSinFieldNumber}}),
      MakeModel<AnswerBuildTable>(
          "build_encoding", {positions},
          {{{"table", kFloats, 2}, Table::kTableFieldNumber}}),
      MakeModel<AnswerAddEncoding>(
          "add_encoding", {{{"x", kFloats, 3}, false}, positions},
          {{{"x", kFloats, 3}, v1::AddEncodingResponse::kXFieldNumber}}),
      MakeModel<AnswerScoreRelative>(
          "score_relative",
          {{{"q", kFloats, 4}, false}, {{"k", kFloats, 4}, false}},
          {{{"scores", kFloats, 4},
            v1::ScoreRelativeResponse::kScoresFieldNumber}}),
      MakeModel<AnswerWholeBias>("build_bias", {},
                                 {{{"bias", "FP32,FP16,BF16,FP64,INT32", 3},
                                   v1::BuildBiasResponse::kTileFieldNumber}}),
      MakeModel<AnswerBuildPositions>("build_positions", {},
                                      {{{"positions", "INT32,FP32,FP64", 1},
                                        v1::Positions::kIdsFieldNumber,
                                        Positions::kPositionsFieldNumber}}),
      MakeModel<AnswerConvertPairing>(
          "convert_pairing", {{{"weight", kFloats, 2}, false}},
          {{{"weight", kFloats, 2},
            v1::ConvertPairingResponse::kWeightFieldNumber}}),
      MakeModel<ResolveRope>(
          "resolve_rope", {},
          {{{"inv_freq", "FP64", 1}, Resolved::kInvFreqFieldNumber},
           // axis_of_pair is not listed, because most encodings have none.
           {{"axis_of_pair", "INT32", 1},
            Resolved::kAxisOfPairFieldNumber,
            0,
            false}}),
  };
}

}  // namespace

const std::vector<Model>& Models() {
  static const auto* const models = new std::vector<Model>(MakeModels());
  return *models;
}

absl::StatusOr<const Model*> FindModel(absl::string_view name,
                                       absl::string_view version) {
  for (const Model& model : Models()) {
    if (model.name != name) continue;
    if (version.empty() || version == kModelVersion) return &model;
    return absl::NotFoundError(absl::StrCat("model_version: '", version,
                                            "'; models have version ",
                                            kModelVersion, " alone"));
  }
  const auto names =
      absl::StrJoin(Models(), ", ", [](std::string* out, const Model& model) {
        absl::StrAppend(out, model.name);
      });
  return absl::NotFoundError(
      absl::StrCat("model_name: '", name, "'; the models are ", names));
}

}  // namespace posenc::server
