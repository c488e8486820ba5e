// Tables that the server keeps for requests which come again.

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "tests/fixtures/server.h"

namespace posenc::server {
namespace {

using testing::HasSubstr;

class TableCacheTest : public ServerTest {
 protected:
  void StartWith(std::int64_t cache_bytes) {
    ServerOptions options;
    options.listen = {"127.0.0.1:0"};
    options.limits.max_request_bytes = 1 << 20;
    options.limits.in_flight_bytes = std::int64_t{64} << 20;
    options.limits.table_cache_bytes = cache_bytes;
    Start(options);
  }

  // 128 KiB for cosines and sines each; tables of other starts differ.
  static v1::BuildTableRequest TableFrom(std::int64_t start) {
    v1::BuildTableRequest request = LargeTable();
    request.mutable_positions()->set_start(start);
    request.set_rows(512);
    return request;
  }

  std::string Bytes(const v1::BuildTableRequest& request) {
    v1::BuildTableResponse response;
    const grpc::Status status = Table(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.SerializeAsString();
  }

  std::int64_t Hits() const { return server_->Status().table_cache_hits; }
  std::int64_t Kept() const { return server_->Status().table_cache_bytes; }
};

constexpr std::int64_t kTableBytes = 256 << 10;

TEST_F(TableCacheTest, ATableIsKeptWhenItIsAskedForTheSecondTime) {
  StartWith(1 << 20);
  const std::string first = Bytes(TableFrom(7));
  EXPECT_EQ(Kept(), 0);
  EXPECT_EQ(Bytes(TableFrom(7)), first);
  EXPECT_EQ(Hits(), 0);
  EXPECT_GE(Kept(), kTableBytes);
  EXPECT_EQ(Bytes(TableFrom(7)), first);
  EXPECT_EQ(Bytes(TableFrom(7)), first);
  EXPECT_EQ(Hits(), 2);
  EXPECT_EQ(server_->Status().table_cache_misses, 2);
  ExpectNothingInFlight();
}

TEST_F(TableCacheTest, KeptTablesAreThoseThatAServerWithoutACacheComputes) {
  std::vector<v1::BuildTableRequest> requests;
  for (const v1::Dtype dtype : {v1::DTYPE_FLOAT32, v1::DTYPE_BFLOAT16}) {
    for (const v1::TableLayout layout :
         {v1::TABLE_LAYOUT_HALF, v1::TABLE_LAYOUT_COMPLEX}) {
      for (const std::int64_t start : {0, 1}) {
        requests.push_back(TableFrom(start));
        requests.back().set_dtype(dtype);
        requests.back().set_layout(layout);
      }
    }
  }
  requests.push_back(TableFrom(0));
  requests.back().mutable_rope()->mutable_spec()->set_rope_theta(5e5);
  requests.push_back(TableFrom(0));
  requests.back().clear_rope();
  v1::Sinusoidal* const sinusoidal =
      requests.back().mutable_absolute()->mutable_sinusoidal();
  sinusoidal->set_dim(256);
  sinusoidal->set_order(v1::SINUSOIDAL_ORDER_SIN_COS);
  StartWith(0);
  std::vector<std::string> computed;
  computed.reserve(requests.size());
  for (const v1::BuildTableRequest& request : requests) {
    computed.push_back(Bytes(request));
  }
  StartWith(16 << 20);
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(Bytes(requests[i]), computed[i]) << "request " << i;
    }
  }
  EXPECT_EQ(Hits(), static_cast<std::int64_t>(requests.size()));
}

TEST_F(TableCacheTest, NothingIsKeptUnlessItIsAskedFor) {
  for (int i = 0; i < 3; ++i) Bytes(TableFrom(0));
  EXPECT_EQ(Hits(), 0);
  EXPECT_EQ(Kept(), 0);
}

TEST_F(TableCacheTest, TheLeastRecentlyUsedTableGoesFirst) {
  StartWith(3 * kTableBytes);  // less than three, with what entries take
  for (const std::int64_t start : {1, 1, 2, 2}) Bytes(TableFrom(start));
  EXPECT_LE(Kept(), 3 * kTableBytes);
  Bytes(TableFrom(1));  // a hit: 2 is the older one now
  EXPECT_EQ(Hits(), 1);
  for (const std::int64_t start : {3, 3}) Bytes(TableFrom(start));
  EXPECT_LE(Kept(), 3 * kTableBytes);
  Bytes(TableFrom(1));
  Bytes(TableFrom(3));
  EXPECT_EQ(Hits(), 3);
  Bytes(TableFrom(2));
  EXPECT_EQ(Hits(), 3);
}

TEST_F(TableCacheTest, ATableLargerThanTheCacheIsNotKept) {
  StartWith(kTableBytes);
  for (int i = 0; i < 3; ++i) Bytes(TableFrom(0));
  EXPECT_EQ(Kept(), 0);
}

TEST_F(TableCacheTest, ARequestWithManyPositionsIsNotKept) {
  StartWith(1 << 20);
  v1::BuildTableRequest request = TableFrom(0);
  SetTensor(v1::DTYPE_INT64, {16384}, std::vector<std::int64_t>(16384, 3),
            request.mutable_positions()->mutable_ids());
  request.set_rows(0);
  for (int i = 0; i < 3; ++i) Bytes(request);
  EXPECT_EQ(Kept(), 0);
}

// Memory that a slow reader holds counts, kept or not.
TEST_F(TableCacheTest, AKeptTableThatIsBeingSentIsClaimed) {
  StartWith(16 << 20);
  for (int i = 0; i < 2; ++i) Bytes(LargeTable());
  ExpectNothingInFlight();
  {
    const std::unique_ptr<RawCall> unread = HoldLargeTable();
    EXPECT_EQ(Hits(), 1);
  }
  ExpectNothingInFlight();
}

TEST_F(TableCacheTest, CallsAtOnceGetTheSameBytes) {
  StartWith(2 * kTableBytes + 4096);  // two of the three fit
  std::vector<std::string> expected;
  expected.reserve(3);
  for (const std::int64_t start : {1, 2, 3}) {
    expected.push_back(Bytes(TableFrom(start)));
  }
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const int which = (i * 7 + t) % 3;
        EXPECT_EQ(Bytes(TableFrom(which + 1)), expected[which]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(Kept(), 2 * kTableBytes + 4096);
  ExpectNothingInFlight();
}

TEST_F(TableCacheTest, TheCacheIsAPartOfTheBudget) {
  StartWith(16 << 20);
  EXPECT_EQ(server_->Status().budget_bytes, std::int64_t{48} << 20);
}

TEST_F(TableCacheTest, AShareOverHalfOfTheBudgetIsRefused) {
  ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  options.limits.max_request_bytes = 1 << 20;
  options.limits.in_flight_bytes = 4 << 20;
  options.limits.table_cache_bytes = (2 << 20) + 1;
  const absl::Status status = CheckOptions(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("--table-cache-bytes: 2097153; may be at most half of "
                        "--in-flight-bytes, 4194304"));
  options.limits.table_cache_bytes = 2 << 20;
  EXPECT_TRUE(CheckOptions(options).ok());
  options.limits.table_cache_bytes = -1;
  EXPECT_FALSE(CheckOptions(options).ok());
}

}  // namespace
}  // namespace posenc::server
