// Tables from a stream, against a scripted service.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "posenc/client.h"
#include "tests/fixtures/client.h"

namespace posenc {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::int64_t RowsOf(const v1::BuildTableRequest& request) {
  return request.positions().has_ids() ? request.positions().ids().shape(0)
                                       : request.rows();
}

class TableService : public v1::PositionalEncodingService::Service {
 public:
  grpc::Status BuildTable(grpc::ServerContext*, const v1::BuildTableRequest*,
                          v1::BuildTableResponse*) override {
    ++unary;
    return unary_status;
  }

  grpc::Status BuildTableStream(
      grpc::ServerContext*, const v1::BuildTableStreamRequest* request,
      grpc::ServerWriter<v1::BuildTableStreamResponse>* writer) override {
    std::vector<v1::BuildTableStreamResponse> table = answers.Get();
    if (!table.empty()) {
      // [heads, rows, 1], or without heads.
      auto* const whole = table[0].mutable_whole_shape();
      *whole = table[0].cos().shape();
      whole->Set(whole->size() - 2, RowsOf(request->table()));
    }
    for (const v1::BuildTableStreamResponse& response : table) {
      if (!writer->Write(response)) break;
    }
    return end;
  }

  // Set before the calls.
  grpc::Status unary_status = Error(grpc::StatusCode::RESOURCE_EXHAUSTED,
                                    "ERROR_REASON_MESSAGE_TOO_LARGE", "");
  grpc::Status end;

  // The answers of later calls. A call that the client has given up may still
  // write earlier answers.
  Guarded<std::vector<v1::BuildTableStreamResponse>> answers;

  // Read after the calls.
  int unary = 0;
};

using TableStreamTest = ServiceTest<TableService>;

v1::BuildTableRequest RopeTable(std::int64_t rows) {
  v1::BuildTableRequest request;
  request.mutable_rope()->set_preset("any");
  request.set_rows(rows);
  return request;
}

v1::BuildTableStreamResponse Rows(std::int64_t first, std::int64_t heads,
                                  std::int64_t rows) {
  v1::BuildTableStreamResponse response;
  response.set_amplitude(1.5);
  response.set_first_row(first);
  for (const bool sine : {false, true}) {
    v1::Tensor* const tensor =
        sine ? response.mutable_sin() : response.mutable_cos();
    tensor->set_dtype(v1::DTYPE_FLOAT32);
    if (heads > 0) tensor->add_shape(heads);
    tensor->add_shape(rows);
    tensor->add_shape(1);
    for (std::int64_t h = 0; h < std::max<std::int64_t>(heads, 1); ++h) {
      for (std::int64_t row = first; row < first + rows; ++row) {
        const float value =
            static_cast<float>(row + 100 * h + (sine ? 1000 : 0));
        tensor->mutable_data()->append(reinterpret_cast<const char*>(&value),
                                       4);
      }
    }
  }
  return response;
}

std::vector<float> Floats(const TensorView& view) {
  std::vector<float> floats(view.bytes.size() / 4);
  std::memcpy(floats.data(), view.bytes.data(), view.bytes.size());
  return floats;
}

TEST_F(TableStreamTest, TablesAboveTheLimitsComeThroughAStream) {
  service_.answers.Set({Rows(0, 0, 2), Rows(2, 0, 2), Rows(4, 0, 1)});
  const Client client = Client::Connect(options_);
  v1::BuildTableRequest request = RopeTable(5);
  request.mutable_positions()->set_start(0);

  const absl::StatusOr<BuildTableResult> result = client.BuildTable(request);

  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(service_.unary, 1);
  EXPECT_EQ(result->amplitude, 1.5);
  EXPECT_EQ(result->cos->shape, (std::vector<std::int64_t>{5, 1}));
  EXPECT_THAT(Floats(*result->cos), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(Floats(*result->sin), ElementsAre(1000, 1001, 1002, 1003, 1004));
  EXPECT_FALSE(result->table.has_value());
}

TEST_F(TableStreamTest, TablesAboveTheLimitsGoToTheCallersMemory) {
  service_.answers.Set({Rows(0, 0, 2), Rows(2, 0, 1)});
  const Client client = Client::Connect(options_);
  const v1::BuildTableRequest request = RopeTable(3);
  std::vector<float> cos(3);
  TableOutputs out;
  out.cos = OutputTo(absl::MakeSpan(cos));

  const absl::StatusOr<BuildTableResult> result =
      client.BuildTable(request, out);

  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->cos->bytes.data(), reinterpret_cast<char*>(cos.data()));
  EXPECT_THAT(cos, ElementsAre(0, 1, 2));
  EXPECT_THAT(Floats(*result->sin), ElementsAre(1000, 1001, 1002));

  out.cos = OutputTo(absl::MakeSpan(cos).first(2));
  const absl::Status small = client.BuildTable(request, out).status();
  EXPECT_EQ(small.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(small.message()),
              HasSubstr("cos_output: has 8 bytes; the result has 12"));
}

TEST_F(TableStreamTest, TablesByHeadArePutTogetherHeadByHead) {
  service_.answers.Set({Rows(0, 2, 2), Rows(2, 2, 1)});
  const Client client = Client::Connect(options_);
  v1::BuildTableRequest request;
  request.mutable_rope()
      ->mutable_spec()
      ->mutable_explicit_frequencies()
      ->set_heads(2);
  request.mutable_positions()->mutable_ids()->add_shape(3);

  const absl::StatusOr<BuildTableResult> result = client.BuildTable(request);

  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->cos->shape, (std::vector<std::int64_t>{2, 3, 1}));
  EXPECT_THAT(Floats(*result->cos), ElementsAre(0, 1, 2, 100, 101, 102));
}

TEST_F(TableStreamTest, TablesWithRowsMissingTwiceOrForeignAreInternal) {
  const Client client = Client::Connect(options_);
  const v1::BuildTableRequest request = RopeTable(4);
  v1::BuildTableStreamResponse twice = Rows(2, 0, 2);
  *twice.mutable_whole_shape() = twice.cos().shape();
  v1::BuildTableStreamResponse wide = Rows(2, 0, 2);
  wide.mutable_cos()->mutable_data()->append(8, 'x');
  v1::BuildTableStreamResponse bare = Rows(2, 0, 2);
  bare.clear_sin();
  v1::BuildTableStreamResponse uneven = Rows(2, 0, 2);
  *uneven.mutable_sin() = Rows(2, 0, 1).sin();
  const std::vector<std::vector<v1::BuildTableStreamResponse>> tables = {
      {},
      {Rows(0, 0, 2)},
      {Rows(2, 0, 2)},
      {Rows(0, 0, 2), Rows(0, 0, 2)},
      {Rows(0, 0, 2), Rows(2, 0, 3)},
      {Rows(0, 0, 2), twice},
      {Rows(0, 0, 2), wide},
      {Rows(0, 0, 2), bare},
      {Rows(0, 0, 2), uneven},
      {Rows(0, 0, 5)},
      {Rows(-1, 0, 5)}};
  for (const auto& table : tables) {
    service_.answers.Set(table);
    EXPECT_EQ(client.BuildTable(request).status().code(),
              absl::StatusCode::kInternal);
  }
}

TEST_F(TableStreamTest, RowsOfATableMayBeTakenAsTheyCome) {
  service_.answers.Set({Rows(0, 0, 2), Rows(2, 0, 2), Rows(4, 0, 1)});
  const Client client = Client::Connect(options_);
  std::vector<std::int64_t> firsts;
  absl::Status status = client.BuildTableStream(
      v1::BuildTableStreamRequest(), [&](const TableChunk& chunk) {
        firsts.push_back(chunk.first_row);
        EXPECT_EQ(Floats(*chunk.rows.cos)[0], chunk.first_row);
        return true;
      });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(firsts, ElementsAre(0, 2, 4));

  status = client.BuildTableStream(v1::BuildTableStreamRequest(),
                                   [](const TableChunk&) { return false; });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace posenc
