// ConvertPairing over a real connection: the order of a weight's rows.

#include "tests/fixtures/server_errors.h"

namespace posenc::server {
namespace {

using testing::ElementsAre;

using ConvertPairingTest = ServerTest;

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

}  // namespace
}  // namespace posenc::server
