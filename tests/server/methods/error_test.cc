// Bad input to BuildTable and ResolveRope, and requests of newer clients.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/fixtures/server_errors.h"

namespace posenc::server {
namespace {

using testing::HasSubstr;

v1::BuildTableRequest GoodTable() {
  v1::BuildTableRequest request;
  v1::RopeSpec* const spec = request.mutable_rope()->mutable_spec();
  spec->set_pairing(v1::PAIRING_HALF_SPLIT);
  spec->set_rotary_dim(8);
  request.mutable_positions()->set_start(0);
  request.set_rows(4);
  return request;
}

v1::Sinusoidal* Sinusoid(v1::BuildTableRequest& request) {
  v1::Sinusoidal* encoding = request.mutable_absolute()->mutable_sinusoidal();
  encoding->set_dim(8);
  encoding->set_order(v1::SINUSOIDAL_ORDER_SIN_COS);
  return encoding;
}

TEST_F(ErrorTest, BuildTableNamesFieldNumbersAndReason) {
  using T = v1::BuildTableRequest;
  const std::vector<BadCase<T>> cases = {
      {"NoEncoding",
       [](T& r) { r.clear_rope(); },
       kInvalid,
       "FIELD_REQUIRED",
       "rope",
       {"absolute"}},
      {"EmptyAbsolute",
       [](T& r) { r.mutable_absolute(); },
       kInvalid,
       "FIELD_REQUIRED",
       "absolute",
       {}},
      {"NegativeRows",
       [](T& r) { r.set_rows(-1); },
       kInvalid,
       "FIELD_INVALID",
       "rows",
       {"-1"}},
      {"NoPositions",
       [](T& r) { r.clear_positions(); },
       kInvalid,
       "FIELD_REQUIRED",
       "positions",
       {}},
      {"Starts",
       [](T& r) { r.mutable_positions()->mutable_starts()->add_values(0); },
       kInvalid,
       "FIELD_INVALID",
       "positions.starts",
       {}},
      {"RowsBesideIds",
       [](T& r) {
         SetTensor<std::int32_t>(v1::DTYPE_INT32, {2}, {0, 1},
                                 r.mutable_positions()->mutable_ids());
       },
       kInvalid,
       "SHAPE_MISMATCH",
       "rows",
       {"4", "2"},
       {{"expected", "2"}, {"actual", "4"}}},
      {"CuSeqlensThatEndBelowZero",
       [](T& r) {
         r.clear_rows();
         r.mutable_positions()->mutable_packed()->add_cu_seqlens(0);
         r.mutable_positions()->mutable_packed()->add_cu_seqlens(-5);
       },
       kInvalid,
       "FIELD_INVALID",
       "positions.packed.cu_seqlens[1]",
       {"-5"}},
      {"IntegerTable",
       [](T& r) { r.set_dtype(v1::DTYPE_INT64); },
       kInvalid,
       "FIELD_INVALID",
       "dtype",
       {"int64"}},
      {"NoRotaryDim",
       [](T& r) { r.mutable_rope()->mutable_spec()->clear_rotary_dim(); },
       kInvalid,
       "FIELD_REQUIRED",
       "rope.spec.rotary_dim",
       {}},
      {"LayerWithoutEncoding",
       [](T& r) {
         r.mutable_rope()->mutable_spec()->Clear();
         r.mutable_rope()->mutable_spec()->set_nope(true);
       },
       kInvalid,
       "FIELD_INVALID",
       "rope",
       {"nope"}},
      {"SinusoidalOfOneChannel",
       [](T& r) { Sinusoid(r)->set_dim(1); },
       kInvalid,
       "FIELD_INVALID",
       "absolute.sinusoidal.dim",
       {"1"}},
      {"SinusoidalWithoutOrder",
       [](T& r) { Sinusoid(r)->clear_order(); },
       kInvalid,
       "FIELD_REQUIRED",
       "absolute.sinusoidal.order",
       {}},
      {"SinusoidalInARotaryLayout",
       [](T& r) {
         Sinusoid(r);
         r.set_layout(v1::TABLE_LAYOUT_HALF);
       },
       kInvalid,
       "FIELD_INVALID",
       "layout",
       {}},
  };
  for (const BadCase<T>& bad : cases) {
    T request = GoodTable();
    bad.spoil(request);
    v1::BuildTableResponse response;
    Expect(bad, Table(request, &response));
    EXPECT_TRUE(Table(GoodTable(), &response).ok()) << "after " << bad.name;
  }
}

TEST_F(ErrorTest, ResolveRopeNamesWhichOfItsSourcesIsWrong) {
  using R = v1::ResolveRopeRequest;
  const std::vector<BadCase<R>> cases = {
      {"NoRope",
       [](R& r) { r.clear_rope(); },
       kInvalid,
       "FIELD_REQUIRED",
       "rope",
       {}},
      {"NegativeHeadDim",
       [](R& r) { r.set_head_dim(-8); },
       kInvalid,
       "FIELD_INVALID",
       "head_dim",
       {"-8"}},
      {"OtherWithoutSource",
       [](R& r) { r.mutable_compare_with(); },
       kInvalid,
       "FIELD_REQUIRED",
       "compare_with",
       {}},
      {"OtherUnknown",
       [](R& r) { r.mutable_compare_with()->set_preset("x"); },
       grpc::StatusCode::NOT_FOUND,
       "PRESET_UNKNOWN",
       "compare_with.preset",
       {"x"}},
  };
  for (const BadCase<R>& bad : cases) {
    R request;
    request.mutable_rope()->mutable_spec()->set_pairing(
        v1::PAIRING_INTERLEAVED);
    request.set_head_dim(8);
    bad.spoil(request);
    v1::ResolveRopeResponse response;
    Expect(bad, Resolve(request, &response));
  }
}

TEST_F(ErrorTest, FieldsOfNewerClientsAreRefusedWhereverTheyStand) {
  const std::string method = "/posenc.v1.PositionalEncodingService/ApplyRope";
  const std::string field_900 = "\xA0\x38\x01";  // varint 1
  std::string response;
  const std::string good = GoodApply().SerializeAsString();
  ASSERT_TRUE(RawUnary(channel_, method, good, &response).ok());

  grpc::Status status = RawUnary(channel_, method, good + field_900, &response);
  EXPECT_EQ(status.error_code(), kUnimplemented);
  Details details = ReadDetails(status);
  EXPECT_EQ(details.reason, "ERROR_REASON_FIELD_UNKNOWN");
  EXPECT_EQ(details.metadata.at("fieldNumber"), "900");
  EXPECT_FALSE(details.has_bad_request);

  // rope { spec { 900: 1 } }, merged into what is there already.
  status = RawUnary(channel_, method, good + "\x0A\x05\x0A\x03" + field_900,
                    &response);
  EXPECT_EQ(status.error_code(), kUnimplemented);
  details = ReadDetails(status);
  EXPECT_EQ(details.reason, "ERROR_REASON_FIELD_UNKNOWN");
  EXPECT_EQ(details.metadata.at("field"), "rope.spec");
  EXPECT_EQ(details.metadata.at("fieldNumber"), "900");
  EXPECT_THAT(status.error_message(), HasSubstr("900"));
}

}  // namespace
}  // namespace posenc::server
