// Bad input to BuildBias over a real connection: code, ErrorInfo, BadRequest
// and message.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/fixtures/server_errors.h"

namespace posenc::server {
namespace {

class BuildBiasErrorTest : public ErrorTest {
 protected:
  // Reads the answer to its end and drops it.
  grpc::Status Drop(const v1::BuildBiasRequest& request) {
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    const auto reader = stub_->BuildBias(&context, request);
    v1::BuildBiasResponse response;
    while (reader->Read(&response)) {
    }
    return reader->Finish();
  }
};

v1::BuildBiasRequest Alibi(std::int32_t heads, std::int64_t queries,
                           std::int64_t keys) {
  v1::BuildBiasRequest request;
  request.set_query_length(queries);
  request.set_key_length(keys);
  request.mutable_bias()->mutable_alibi()->set_heads(heads);
  return request;
}

TEST_F(BuildBiasErrorTest, NamesFieldNumbersAndReason) {
  using B = v1::BuildBiasRequest;
  const auto t5 = [](B& r) { return r.mutable_bias()->mutable_t5(); };
  const auto kerple = [](B& r) {
    v1::Kerple* kerple = r.mutable_bias()->mutable_kerple();
    kerple->set_kernel(v1::Kerple::KERNEL_POWER);
    kerple->add_r1(1);
    kerple->add_r2(1);
    return kerple;
  };
  const std::vector<BadCase<B>> cases = {
      {"NoBias",
       [](B& r) { r.clear_bias(); },
       kInvalid,
       "FIELD_REQUIRED",
       "bias",
       {}},
      {"EmptyBias",
       [](B& r) { r.mutable_bias()->Clear(); },
       kInvalid,
       "FIELD_REQUIRED",
       "bias",
       {}},
      {"NoHeads",
       [](B& r) { r.mutable_bias()->mutable_alibi()->Clear(); },
       kInvalid,
       "FIELD_REQUIRED",
       "bias.alibi.heads",
       {}},
      {"SlopesOfOtherHeads",
       [](B& r) { r.mutable_bias()->mutable_alibi()->add_slopes(1); },
       kInvalid,
       "FIELD_INVALID",
       "bias.alibi.slopes",
       {"1", "4"}},
      {"NoQueries",
       [](B& r) { r.clear_query_length(); },
       kInvalid,
       "FIELD_REQUIRED",
       "query_length",
       {}},
      {"NegativeKeys",
       [](B& r) { r.set_key_length(-2); },
       kInvalid,
       "FIELD_INVALID",
       "key_length",
       {"-2"}},
      {"NegativeQueryTile",
       [](B& r) { r.set_query_tile(-1); },
       kInvalid,
       "FIELD_INVALID",
       "query_tile",
       {"-1"}},
      {"NegativeKeyTile",
       [](B& r) { r.set_key_tile(-1); },
       kInvalid,
       "FIELD_INVALID",
       "key_tile",
       {"-1"}},
      {"TileOverTheLimit",
       [](B& r) {
         r.set_query_length(1 << 20);
         r.set_key_length(1 << 20);
         r.set_query_tile(1 << 20);
         r.set_key_tile(1 << 20);
       },
       kExhausted,
       "MESSAGE_TOO_LARGE",
       "query_tile",
       {"[4, 1048576, 1048576]", "536870912"},
       {{"limitBytes", "536870912"}}},
      {"NoTileOfSoManyHeadsFits",
       [](B& r) {
         r.mutable_bias()->mutable_alibi()->set_heads(2147483647);
         r.set_query_tile(1);
         r.set_key_tile(1);
       },
       kExhausted,
       "MESSAGE_TOO_LARGE",
       "bias.alibi.heads",
       {"[2147483647, 1, 1]", "ask for fewer heads"},
       {{"limitBytes", "536870912"}, {"messageIndex", "0"}}},
      {"IntegerBias",
       [](B& r) { r.set_dtype(v1::DTYPE_INT64); },
       kInvalid,
       "FIELD_INVALID",
       "dtype",
       {"int64"}},
      {"CausalIndices",
       [](B& r) {
         r.mutable_bias()->mutable_relative_index()->mutable_clip()->set_left(
             1);
         r.set_causal(true);
       },
       kInvalid,
       "FIELD_INVALID",
       "causal",
       {}},
      {"NoRule",
       [](B& r) { r.mutable_bias()->mutable_relative_index(); },
       kInvalid,
       "FIELD_REQUIRED",
       "bias.relative_index",
       {}},
      {"DistanceWithinExactBuckets",
       [t5](B& r) {
         t5(r)->set_num_buckets(32);
         t5(r)->set_max_distance(16);
       },
       kInvalid,
       "FIELD_INVALID",
       "bias.t5.max_distance",
       {"16"}},
      {"WeightsWithoutDtype",
       [t5](B& r) { t5(r)->mutable_weights(); },
       kInvalid,
       "FIELD_REQUIRED",
       "bias.t5.weights.dtype",
       {}},
      {"WeightsOfOtherBuckets",
       [t5](B& r) {
         SetTensor<float>(v1::DTYPE_FLOAT32, {31, 1}, std::vector<float>(31),
                          t5(r)->mutable_weights());
       },
       kInvalid,
       "SHAPE_MISMATCH",
       "bias.t5.weights.shape",
       {"31", "32"}},
      {"KernelMissing",
       [kerple](B& r) { kerple(r)->clear_kernel(); },
       kInvalid,
       "FIELD_REQUIRED",
       "bias.kerple.kernel",
       {}},
      {"KernelOfTomorrow",
       [kerple](B& r) {
         kerple(r)->set_kernel(static_cast<v1::Kerple::Kernel>(7));
       },
       kUnimplemented,
       "FIELD_UNKNOWN",
       "bias.kerple.kernel",
       {"7"}},
      {"NotPositive",
       [kerple](B& r) { kerple(r)->set_r1(0, 0); },
       kInvalid,
       "FIELD_INVALID",
       "bias.kerple.r1[0]",
       {"0"}},
      {"FireWithoutC",
       [](B& r) { r.mutable_bias()->mutable_fire(); },
       kInvalid,
       "FIELD_REQUIRED",
       "bias.fire.c",
       {}},
      {"FireWithoutWeights",
       [](B& r) {
         r.mutable_bias()->mutable_fire()->set_c(1);
         r.mutable_bias()->mutable_fire()->set_threshold(1);
       },
       kInvalid,
       "FIELD_REQUIRED",
       "bias.fire.w1",
       {}},
      {"OddSandwich",
       [](B& r) {
         r.mutable_bias()->mutable_sandwich()->set_heads(1);
         r.mutable_bias()->mutable_sandwich()->set_dim(3);
       },
       kInvalid,
       "FIELD_INVALID",
       "bias.sandwich.dim",
       {"3"}},
      {"UntiedWithoutKeys",
       [](B& r) {
         SetTensor<float>(v1::DTYPE_FLOAT32, {1, 4, 1}, std::vector<float>(4),
                          r.mutable_bias()
                              ->mutable_untied_positions()
                              ->mutable_position_queries());
       },
       kInvalid,
       "FIELD_REQUIRED",
       "bias.untied_positions.position_keys",
       {}},
      {"UntiedPastItsRows",
       [](B& r) {
         v1::UntiedPositions* untied =
             r.mutable_bias()->mutable_untied_positions();
         for (v1::Tensor* tensor : {untied->mutable_position_queries(),
                                    untied->mutable_position_keys()}) {
           SetTensor<float>(v1::DTYPE_FLOAT32, {1, 4, 1}, std::vector<float>(4),
                            tensor);
         }
         r.set_key_start(2);
       },
       kOutOfRange,
       "POSITION_OUT_OF_RANGE",
       "key_length",
       {"5", "3"}},
      {"FarStart",
       [](B& r) { r.set_query_start((std::int64_t{1} << 31) + 1); },
       kOutOfRange,
       "POSITION_OUT_OF_RANGE",
       "query_start",
       {"2147483649"}},
  };
  for (const BadCase<B>& bad : cases) {
    B request = Alibi(4, 3, 4);
    bad.spoil(request);
    Expect(bad, Drop(request));
  }
  EXPECT_TRUE(Drop(Alibi(4, 3, 4)).ok());
}

}  // namespace
}  // namespace posenc::server
