// ConvertPairing over a real connection: the order of a weight's rows, written
// out.

#include "tests/fixtures/server_errors.h"

namespace posenc::server {
namespace {

using testing::ElementsAre;

using ConvertPairingTest = ErrorTest;

// Two heads of four rows, one column; the row's number is its value.
v1::ConvertPairingRequest GoodConvert() {
  v1::ConvertPairingRequest request;
  request.set_old_pairing(v1::PAIRING_INTERLEAVED);
  request.set_new_pairing(v1::PAIRING_HALF_SPLIT);
  request.set_heads(2);
  SetTensor<double>(v1::DTYPE_FLOAT64, {8, 1}, {0, 1, 2, 3, 4, 5, 6, 7},
                    request.mutable_weight());
  return request;
}

TEST_F(ConvertPairingTest, ConvertPairingReordersTheRowsOfEachHead) {
  v1::ConvertPairingRequest request = GoodConvert();
  v1::ConvertPairingResponse response;
  const grpc::Status status = Call(&Stub::ConvertPairing, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(response.weight().shape(), ElementsAre(8, 1));
  EXPECT_THAT(Elements<double>(response.weight()),
              ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));

  request.set_heads(1);
  request.set_rotary_dim(4);
  request.set_slice(v1::ROTARY_SLICE_TRAILING);
  ASSERT_TRUE(Call(&Stub::ConvertPairing, request, &response).ok());
  EXPECT_THAT(Elements<double>(response.weight()),
              ElementsAre(0, 1, 2, 3, 4, 6, 5, 7));
}

TEST_F(ConvertPairingTest, ConvertPairingNamesFieldNumbersAndReason) {
  using C = v1::ConvertPairingRequest;
  ExpectAll<C, v1::ConvertPairingResponse>(
      GoodConvert(),
      {
          {"NoOldPairing",
           [](C& c) { c.clear_old_pairing(); },
           kInvalid,
           "FIELD_REQUIRED",
           "old_pairing",
           {}},
          {"NoNewPairing",
           [](C& c) { c.clear_new_pairing(); },
           kInvalid,
           "FIELD_REQUIRED",
           "new_pairing",
           {}},
          {"PairingOfTomorrow",
           [](C& c) { c.set_new_pairing(static_cast<v1::Pairing>(3)); },
           kUnimplemented,
           "FIELD_UNKNOWN",
           "new_pairing",
           {"3"}},
          {"NoHeads",
           [](C& c) { c.clear_heads(); },
           kInvalid,
           "FIELD_REQUIRED",
           "heads",
           {}},
          {"NegativeHeads",
           [](C& c) { c.set_heads(-2); },
           kInvalid,
           "FIELD_INVALID",
           "heads",
           {"-2"}},
          {"RowsThatDoNotDivide",
           [](C& c) { c.set_heads(3); },
           kInvalid,
           "SHAPE_MISMATCH",
           "weight.shape",
           {"8", "3"}},
          {"OddRotaryDim",
           [](C& c) { c.set_rotary_dim(3); },
           kInvalid,
           "FIELD_INVALID",
           "rotary_dim",
           {"3"}},
          {"RotaryDimOverTheHead",
           [](C& c) { c.set_rotary_dim(6); },
           kInvalid,
           "FIELD_INVALID",
           "rotary_dim",
           {"6", "4"}},
          {"NoWeight",
           [](C& c) { c.clear_weight(); },
           kInvalid,
           "FIELD_REQUIRED",
           "weight",
           {}},
          {"WeightOfTheWrongSize",
           [](C& c) { c.mutable_weight()->set_data("1234"); },
           kInvalid,
           "TENSOR_SIZE_MISMATCH",
           "weight.data",
           {"4", "64"}},
      },
      &Stub::ConvertPairing);
}

}  // namespace
}  // namespace posenc::server
