// Errors that no table of tests/data/bad_requests can hold: fields of newer
// clients, messages of a stream, and limits of another server.

#include <string>

#include "tests/fixtures/server_errors.h"

namespace posenc::server {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

using ErrorTest = ServerTest;

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

  // rope { spec { 900: 1 } }, merged into the existing field.
  status = RawUnary(channel_, method, good + "\x0A\x05\x0A\x03" + field_900,
                    &response);
  EXPECT_EQ(status.error_code(), kUnimplemented);
  details = ReadDetails(status);
  EXPECT_EQ(details.reason, "ERROR_REASON_FIELD_UNKNOWN");
  EXPECT_EQ(details.metadata.at("field"), "rope.spec");
  EXPECT_EQ(details.metadata.at("fieldNumber"), "900");
  EXPECT_THAT(status.error_message(), HasSubstr("900"));
}

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
