// Errors that no table of tests/data/bad_requests can hold, because they depend
// on the server's limits.

#include "tests/fixtures/server_errors.h"

namespace posenc::server {
namespace {

using testing::StartsWith;

using ErrorTest = ServerTest;

TEST_F(ErrorTest, AMessageOfAStreamedTableIsTooLargeByItsRowsOrByNoField) {
  Start({.limits = {.max_response_bytes = 1 << 20}});
  v1::BuildTableStreamRequest request;
  v1::BuildTableRequest* const table = request.mutable_table();
  v1::Sinusoidal* const encoding =
      table->mutable_absolute()->mutable_sinusoidal();
  encoding->set_order(v1::SINUSOIDAL_ORDER_SIN_COS);
  encoding->set_dim(1 << 10);
  table->mutable_positions()->set_start(0);
  table->set_rows(1000);
  request.set_rows_per_message(500);  // 2 MB
  const grpc::Status by_rows = StreamTable(request);
  ExpectError(by_rows, {kExhausted, "MESSAGE_TOO_LARGE", "rows_per_message"});
  EXPECT_THAT(by_rows.error_message(),
              StartsWith("rows_per_message: response of "));

  request.clear_rows_per_message();
  EXPECT_TRUE(StreamTable(request).ok());
  encoding->set_dim(65536);
  table->set_dtype(v1::DTYPE_FLOAT64);
  Start({.limits = {.max_response_bytes = 1 << 18}});  // a row has 512 KiB
  const grpc::Status by_none = StreamTable(request);
  ExpectError(by_none, {kExhausted, "MESSAGE_TOO_LARGE", ""});
  EXPECT_THAT(by_none.error_message(), StartsWith("response of "));
  EXPECT_EQ(ReadDetails(by_none).metadata.count("field"), 0u);
}

}  // namespace
}  // namespace posenc::server
