// Views of the caller's elements, and the server's errors for views that do not
// fit their shape.

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "posenc/client.h"
#include "server/service/server.h"

namespace posenc {
namespace {

using Shape = std::vector<std::int64_t>;

template <typename T>
void ExpectView(const TensorView& view, v1::Dtype dtype,
                const std::vector<T>& elements, const Shape& shape) {
  EXPECT_EQ(view.dtype, dtype);
  EXPECT_EQ(view.shape, shape);
  EXPECT_EQ(view.bytes.data(), static_cast<const void*>(elements.data()));
  EXPECT_EQ(view.bytes.size(), elements.size() * sizeof(T));
}

TEST(FromConfigFileTest, AnUnreadableFileIsAnError) {
  for (const char* const path : {"/nonexistent/config.json", "/tmp"}) {
    EXPECT_EQ(FromConfigFile(path).status().code(),
              absl::StatusCode::kInvalidArgument)
        << path;
  }
  const auto empty = FromConfigFile("/dev/null");
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ(empty->config_json(), "");
}

TEST(ViewsTest, ElementsTellTheirDtype) {
  const std::vector<float> floats(6);
  const std::vector<double> doubles(6);
  const std::vector<std::int32_t> ints(6);
  const std::vector<std::int64_t> longs(6);
  ExpectView(ViewOf(floats, {2, 3}), v1::DTYPE_FLOAT32, floats, {2, 3});
  ExpectView(ViewOf(doubles, {6}), v1::DTYPE_FLOAT64, doubles, {6});
  ExpectView(ViewOf(ints, {3, 2}), v1::DTYPE_INT32, ints, {3, 2});
  ExpectView(ViewOf(longs, {1, 6}), v1::DTYPE_INT64, longs, {1, 6});
  ExpectView(ViewOf(absl::MakeConstSpan(floats), {6}), v1::DTYPE_FLOAT32,
             floats, {6});
}

TEST(ViewsTest, ElementsOf16BitsAreToldTheirDtype) {
  const std::vector<std::uint16_t> bits(4);
  ExpectView(ViewOf(v1::DTYPE_BFLOAT16, bits, {4}), v1::DTYPE_BFLOAT16, bits,
             {4});
  ExpectView(ViewOf(v1::DTYPE_FLOAT16, bits, {2, 2}), v1::DTYPE_FLOAT16, bits,
             {2, 2});
}

TEST(ViewsTest, ATensorOfAMessageIsViewedAndCopied) {
  const std::vector<double> ids = {0, 0.5, 1};
  const v1::Tensor tensor = ToTensor(ViewOf(ids, {3}));
  const TensorView view = ViewOf(tensor);
  EXPECT_EQ(view.dtype, v1::DTYPE_FLOAT64);
  EXPECT_EQ(view.shape, Shape{3});
  EXPECT_EQ(view.bytes.data(), tensor.data().data());
  EXPECT_EQ(std::memcmp(view.bytes.data(), ids.data(), view.bytes.size()), 0);
}

class ViewsOfCallsTest : public testing::Test {
 protected:
  static ApplyRopeArgs Args(const TensorView& q) {
    ApplyRopeArgs args;
    args.rope.mutable_spec()->set_rotary_dim(2);
    args.rope.mutable_spec()->set_rope_theta(10000);
    args.rope.mutable_spec()->set_pairing(v1::PAIRING_INTERLEAVED);
    args.positions = StartAt(0);
    args.layout = v1::LAYOUT_THD;
    args.q = q;
    return args;
  }

  absl::StatusOr<std::unique_ptr<server::Server>> server_ =
      server::Server::Start(server::ServerOptions());
  Client client_{(*server_)->InProcessChannel()};
};

TEST_F(ViewsOfCallsTest, ResultsGoToElementsOfTheCallers) {
  const std::vector<float> q = {1, 2, 3, 4};
  std::vector<float> rotated(4);
  ApplyRopeArgs args = Args(ViewOf(q, {1, 2, 2}));
  args.q_out = OutputTo(absl::MakeSpan(rotated));
  const absl::StatusOr<ApplyRopeResult> result = client_.ApplyRope(args);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(rotated, q);  // position 0
}

TEST_F(ViewsOfCallsTest,
       ElementsThatDoNotFitTheirShapeAreRefusedWithBothSizes) {
  const std::vector<float> q(4);
  for (const Shape& shape : {Shape{1, 1, 2}, Shape{1, 3, 2}}) {
    const absl::Status status =
        client_.ApplyRope(Args(ViewOf(q, shape))).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(ErrorReason(status), "ERROR_REASON_TENSOR_SIZE_MISMATCH");
    EXPECT_EQ(ErrorFact(status, "actualBytes"), "16");
    EXPECT_EQ(ErrorFact(status, "expectedBytes"), std::to_string(shape[1] * 8));
    EXPECT_EQ(client_.ApplyRopeStream(Args(ViewOf(q, shape))).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace posenc
