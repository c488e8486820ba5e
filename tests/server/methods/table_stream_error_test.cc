// Errors of BuildTableStream: which of all rows, and which field, they name.

#include <cstdint>
#include <string>

#include "gmock/gmock.h"
#include "tests/fixtures/server_errors.h"

namespace posenc::server {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

using TableStreamTest = ErrorTest;

// A table of 4000 rows, streamed by the thousand.
v1::BuildTableStreamRequest Learned(std::int64_t start, std::int64_t rows) {
  v1::BuildTableStreamRequest request;
  request.set_rows_per_message(1000);
  v1::BuildTableRequest* const table = request.mutable_table();
  SetTensor(v1::DTYPE_FLOAT32, {4000, 2}, std::vector<float>(8000, 1.0f),
            table->mutable_absolute()->mutable_learned()->mutable_table());
  table->mutable_positions()->set_start(start);
  table->set_rows(rows);
  return request;
}

TEST_F(TableStreamTest, AStreamedTableSaysWhichOfAllItsRowsIsOutOfReach) {
  using T = v1::BuildTableStreamRequest;
  EXPECT_TRUE(StreamTable(Learned(0, 4000)).ok());
  const auto ids = [](T& r, std::int64_t n, std::int64_t at, double position) {
    std::vector<double> values(n);
    values[at] = position;
    r.mutable_table()->clear_rows();
    SetTensor(v1::DTYPE_FLOAT64, {n}, values,
              r.mutable_table()->mutable_positions()->mutable_ids());
  };
  const auto xpos = [](T& r) {
    v1::RopeSpec* const spec =
        r.mutable_table()->mutable_rope()->mutable_spec();
    spec->set_pairing(v1::PAIRING_HALF_SPLIT);
    spec->set_rotary_dim(8);
    spec->mutable_xpos();
  };
  const std::vector<BadCase<T>> cases = {
      {"StartWithoutRows",
       [](T& r) { r.mutable_table()->clear_rows(); },
       kInvalid,
       "FIELD_REQUIRED",
       "table.rows",
       {"positions.start"},
       {{"messageIndex", "0"}}},
      {"OneRowTooMany",
       [](T& r) { r.mutable_table()->set_rows(4001); },
       kOutOfRange,
       "POSITION_OUT_OF_RANGE",
       "table.positions",
       {"element 4000 is 4000", "0 to 3999"},
       {{"index", "4000"}, {"messageIndex", "0"}}},
      {"ManyTooMany",
       [](T& r) { r.mutable_table()->set_rows(std::int64_t{1} << 31); },
       kOutOfRange,
       "POSITION_OUT_OF_RANGE",
       "table.positions",
       {"element 4000 is 4000"},
       {{"index", "4000"}, {"messageIndex", "0"}}},
      {"FarBehindIt",
       [](T& r) { r.mutable_table()->mutable_positions()->set_start(400000); },
       kOutOfRange,
       "POSITION_OUT_OF_RANGE",
       "table.positions",
       {"element 0 is 400000;"},
       {{"index", "0"}, {"messageIndex", "0"}}},
      {"IdFarIn",
       [&](T& r) { ids(r, 5000, 4321, 400000); },
       kOutOfRange,
       "POSITION_OUT_OF_RANGE",
       "table.positions",
       {"element 4321 is 400000;"},
       {{"index", "4321"}, {"messageIndex", "0"}}},
      {"XPosIdFarIn",
       [&](T& r) {
         xpos(r);
         ids(r, 3000, 2500, 1e7);
       },
       kOutOfRange,
       "POSITION_OUT_OF_RANGE",
       "table.positions.ids",
       {"element 2500 is 10000000;"},
       {{"index", "2500"}, {"messageIndex", "0"}}},
      {"XPosRowsGoTooFar",
       [&](T& r) {
         xpos(r);
         // 87 * 512 / -ln(0.4 / 1.4) = 35556.6...
         r.mutable_table()->set_rows(100000);
       },
       kOutOfRange,
       "POSITION_OUT_OF_RANGE",
       "table.positions.start",
       {"element 35557 is 35557;", "beyond 35556 positions"},
       {{"index", "35557"}, {"messageIndex", "0"}}},
  };
  for (const BadCase<T>& bad : cases) {
    T request = Learned(0, 4000);
    bad.spoil(request);
    Expect(bad, StreamTable(request));
  }
}

TEST_F(TableStreamTest,
       AMessageOfAStreamedTableIsTooLargeByItsRowsOrByNoField) {
  ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  options.limits.max_response_bytes = 1 << 20;
  Start(options);
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
  EXPECT_EQ(by_rows.error_code(), kExhausted);
  EXPECT_THAT(by_rows.error_message(),
              StartsWith("rows_per_message: response of "));
  EXPECT_EQ(ReadDetails(by_rows).reason, "ERROR_REASON_MESSAGE_TOO_LARGE");
  EXPECT_EQ(ReadDetails(by_rows).metadata.at("field"), "rows_per_message");

  request.clear_rows_per_message();
  EXPECT_TRUE(StreamTable(request).ok());
  encoding->set_dim(1 << 20);  // a row of 4 MiB
  const grpc::Status by_none = StreamTable(request);
  EXPECT_EQ(by_none.error_code(), kExhausted);
  EXPECT_THAT(by_none.error_message(), StartsWith("response of "));
  EXPECT_EQ(ReadDetails(by_none).reason, "ERROR_REASON_MESSAGE_TOO_LARGE");
  EXPECT_EQ(ReadDetails(by_none).metadata.count("field"), 0u);
}

}  // namespace
}  // namespace posenc::server
