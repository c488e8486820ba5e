// Requests with several faults: every one of them is in the answer, the first
// gives code and reason. Requests with one fault, whose answers name no other,
// are those of the other error tests.

#include <vector>

#include "tests/fixtures/server_errors.h"

namespace posenc::server {
namespace {

using FaultsTest = ErrorTest;

// Empty requests: the first field must be named, and these beside it.
TEST_F(FaultsTest, AnEmptyRequestIsToldAllThatIsRequired) {
  v1::ApplyRopeResponse applied;
  Expect<v1::ApplyRopeRequest>({"ApplyRope",
                                nullptr,
                                kInvalid,
                                "FIELD_REQUIRED",
                                "rope",
                                {"spec", "preset"},
                                {},
                                {"layout", "q", "positions"}},
                               Apply({}, &applied));
  v1::RepositionResponse moved;
  Expect<v1::RepositionRequest>(
      {"Reposition",
       nullptr,
       kInvalid,
       "FIELD_REQUIRED",
       "old_rope",
       {},
       {},
       {"layout", "k", "movement"}},
      Call(&Stub::Reposition, v1::RepositionRequest(), &moved));
  v1::BuildTableResponse table;
  Expect<v1::BuildTableRequest>({"BuildTable",
                                 nullptr,
                                 kInvalid,
                                 "FIELD_REQUIRED",
                                 "rope",
                                 {"absolute"},
                                 {},
                                 {"positions"}},
                                Table({}, &table));
  v1::AddEncodingResponse added;
  Expect<v1::AddEncodingRequest>(
      {"AddEncoding",
       nullptr,
       kInvalid,
       "FIELD_REQUIRED",
       "encoding",
       {},
       {},
       {"x", "positions"}},
      Call(&Stub::AddEncoding, v1::AddEncodingRequest(), &added));
  v1::ScoreRelativeResponse scores;
  Expect<v1::ScoreRelativeRequest>(
      {"ScoreRelative",
       nullptr,
       kInvalid,
       "FIELD_REQUIRED",
       "q",
       {},
       {},
       {"k", "score"}},
      Call(&Stub::ScoreRelative, v1::ScoreRelativeRequest(), &scores));
  v1::ConvertPairingResponse converted;
  Expect<v1::ConvertPairingRequest>(
      {"ConvertPairing",
       nullptr,
       kInvalid,
       "FIELD_REQUIRED",
       "weight",
       {},
       {},
       {"old_pairing", "new_pairing", "heads"}},
      Call(&Stub::ConvertPairing, v1::ConvertPairingRequest(), &converted));
  grpc::ClientContext context;
  context.set_deadline(Deadline());
  v1::BuildBiasResponse tile;
  const auto tiles = stub_->BuildBias(&context, {});
  EXPECT_FALSE(tiles->Read(&tile));
  Expect<v1::BuildBiasRequest>({"BuildBias",
                                nullptr,
                                kInvalid,
                                "FIELD_REQUIRED",
                                "bias",
                                {},
                                {},
                                {"query_length", "key_length"}},
                               tiles->Finish());
}

TEST_F(FaultsTest, FaultsOfSeparateFieldsComeTogether) {
  using A = v1::ApplyRopeRequest;
  const std::vector<BadCase<A>> cases = {
      {"DtypeOfQAndSizeOfK",
       [](A& r) {
         r.mutable_q()->clear_dtype();
         r.mutable_k()->mutable_data()->pop_back();
       },
       kInvalid,
       "FIELD_REQUIRED",
       "q.dtype",
       {},
       {},
       {"k.data"}},
      {"ShapesOfBoth",
       [](A& r) {
         r.mutable_q()->clear_shape();
         r.mutable_q()->add_shape(32);
         r.mutable_k()->clear_shape();
         r.mutable_k()->add_shape(16);
       },
       kInvalid,
       "FIELD_INVALID",
       "q.shape",
       {"rank 1"},
       {},
       {"k.shape"}},
      {"SizeOfQAndDtypeOfK",
       [](A& r) {
         r.mutable_q()->mutable_data()->pop_back();
         r.mutable_k()->set_dtype(v1::DTYPE_INT32);
       },
       kInvalid,
       "TENSOR_SIZE_MISMATCH",
       "q.data",
       {"127"},
       {{"expectedBytes", "128"}},
       {"k.dtype"}},
      {"DtypeOfQAndPositionsOfK",
       [](A& r) {
         r.mutable_q()->set_dtype(v1::DTYPE_INT32);
         r.mutable_positions()->set_start(std::int64_t{1} << 33);
       },
       kInvalid,
       "FIELD_INVALID",
       "q.dtype",
       {},
       {},
       {"positions.start"}},
      {"SettingsOfTheEncoding",
       [](A& r) {
         v1::RopeSpec* const spec = r.mutable_rope()->mutable_spec();
         spec->clear_pairing();
         spec->set_rope_theta(0.5);
         spec->mutable_yarn();
         r.clear_positions();
       },
       kInvalid,
       "FIELD_REQUIRED",
       "rope.spec.pairing",
       {},
       {},
       {"rope.spec.rope_theta", "rope.spec.yarn.factor",
        "rope.spec.yarn.original_max_position_embeddings", "positions"}},
      {"PresetAndLayout",
       [](A& r) {
         r.mutable_rope()->set_preset("nobody");
         r.clear_layout();
       },
       kInvalid,
       "FIELD_REQUIRED",
       "layout",
       {},
       {},
       {"rope.preset"}},
      {"ScaleAndPositions",
       [](A& r) {
         r.mutable_query_scale()->set_floor_scale(-1);
         r.clear_positions();
       },
       kInvalid,
       "FIELD_INVALID",
       "query_scale.floor_scale",
       {},
       {},
       {"positions"}},
      // What cannot be known without the faulty field is not guessed at.
      {"ScaleOfAQThatCannotBeRead",
       [](A& r) {
         r.mutable_query_scale()->set_beta(0.1);
         r.mutable_query_scale()->set_floor_scale(8192);
         r.mutable_q()->clear_dtype();
       },
       kInvalid,
       "FIELD_REQUIRED",
       "q.dtype",
       {}},
      {"PositionsOfAnEmptyTensor",
       [](A& r) {
         r.clear_layout();
         r.clear_positions();
         r.clear_k();
         SetTensor<float>(v1::DTYPE_FLOAT32, {1, 0, 2, 8}, {}, r.mutable_q());
       },
       kInvalid,
       "FIELD_REQUIRED",
       "layout",
       {}},
  };
  ExpectAll(GoodApply(), cases, &Stub::ApplyRope);
}

TEST_F(FaultsTest, StreamsSayWhichMessageHasThem) {
  grpc::ClientContext context;
  context.set_deadline(Deadline());
  const auto stream = stub_->ApplyRopeStream(&context);
  v1::ApplyRopeStreamRequest empty;
  ASSERT_TRUE(stream->Write(empty));
  stream->WritesDone();
  v1::ApplyRopeStreamResponse response;
  EXPECT_FALSE(stream->Read(&response));
  Expect<v1::ApplyRopeStreamRequest>({"Settings",
                                      nullptr,
                                      kInvalid,
                                      "FIELD_REQUIRED",
                                      "rope",
                                      {},
                                      {{"messageIndex", "0"}},
                                      {"layout"}},
                                     stream->Finish());
}

}  // namespace
}  // namespace posenc::server
