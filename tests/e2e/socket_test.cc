// The main job through real sockets: client library, gRPC, server, core.
// Answers are compared with the test's own rotation, in long double from the
// published formula of Llama 3.1.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/tools/check/element.h"
#include "client/tools/check/rotated_heads.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "posenc/client.h"
#include "server/service/server.h"
#include "tests/fixtures/core/tensor_bytes.h"
#include "tests/fixtures/directory.h"

namespace posenc {
namespace {

using testing::SizeIs;

constexpr char kPreset[] = "llama-3.1-8b";
constexpr int kHeadDim = 128;
constexpr int kPairs = kHeadDim / 2;
constexpr int kTokens = 48;

// Unit roundoff of float32 and bfloat16 (24 and 8 bits of significand).
constexpr long double kFloatRoundoff = 0x1p-24L;
constexpr long double kBfloat16Roundoff = 0x1p-8L;

// The relative error of a frequency computed in double: a power, a division and
// the ramp, whose error the division by 8 multiplies, have fewer than 40
// roundings.
constexpr long double kFrequencyError = 64 * 0x1p-53L;

// Llama 3.1: theta 500000, factor 8, low 1, high 4, trained on 8192.
long double Frequency(int pair) {
  const long double pi = std::acos(-1.0L);
  const long double w = std::pow(500000.0L, -2.0L * pair / kHeadDim);
  const long double turns = 8192 * w / (2 * pi);
  const long double t = std::min(1.0L, std::max(0.0L, (turns - 1) / (4 - 1)));
  return (1 - t) * w / 8 + t * w;
}

std::vector<float> RandomFloats(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Truncates to bfloat16: inputs may have any values.
std::vector<std::uint16_t> ToBfloat16(const std::vector<float>& values) {
  std::vector<std::uint16_t> out(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, &values[i], sizeof(bits));
    out[i] = static_cast<std::uint16_t>(bits >> 16);
  }
  return out;
}

ApplyRopeArgs ArgsAt(std::int64_t start) {
  ApplyRopeArgs args;
  args.rope = FromPreset(kPreset);
  args.positions = StartAt(start);
  args.layout = v1::LAYOUT_BSHD;
  return args;
}

// Checks that `after` is `before` rotated, half-split, from position `start`
// on. float32 arithmetic with correctly rounded cosines rounds each term three
// times; the error of the frequencies changes the angle; the result is rounded
// once to the dtype.
void ExpectRotated(const TensorView& before, const TensorView& after,
                   std::int64_t start, long double dtype_roundoff) {
  ASSERT_EQ(after.dtype, before.dtype);
  ASSERT_EQ(after.shape, before.shape);
  ASSERT_EQ(after.bytes.size(), before.bytes.size());
  check::TokenRotation rotation;
  for (int i = 0; i < kPairs; ++i) rotation.frequencies.push_back(Frequency(i));
  rotation.angle_error = kFrequencyError;
  rotation.before.pairs = rotation.after.pairs = kPairs;
  const auto sent = check::HeadsView::Of(before, v1::LAYOUT_BSHD);
  const auto got = check::HeadsView::Of(after, v1::LAYOUT_BSHD);
  ASSERT_TRUE(sent.ok() && got.ok());
  std::int64_t visited = 0;
  int failures = 0;
  check::VisitRotatedHeads(
      rotation, *sent, *got,
      [start](std::int64_t token) {
        return static_cast<long double>(start + token);
      },
      /*token_step=*/1,
      [&](const check::RotatedElement& element) {
        ++visited;
        const long double arithmetic =
            3.001L * kFloatRoundoff * element.terms + element.from_angle;
        const long double tolerance =
            arithmetic +
            dtype_roundoff * (std::abs(element.exact) + arithmetic);
        if (element.passes_through ||
            !(std::abs(element.actual - element.exact) <= tolerance)) {
          ADD_FAILURE() << "element " << element.index << ": " << element.actual
                        << ", expected " << element.exact << " +- "
                        << tolerance;
          ++failures;
        }
        return failures < 5;
      });
  if (failures == 0) {
    EXPECT_EQ(visited, check::ElementCount(before.shape));
  }
}

class SocketTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    server::ServerOptions options;
    options.listen = {GetParam() == std::string("tcp")
                          ? "127.0.0.1:0"
                          : absl::StrCat("unix:", directory_.Path("socket"))};
    auto server = server::Server::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ASSERT_THAT(server_->addresses(), SizeIs(1));
    client_ = std::make_unique<Client>(
        Client::Connect({server_->addresses().front()}));
  }

  const test::Directory directory_;
  std::unique_ptr<server::Server> server_;
  std::unique_ptr<Client> client_;
};

TEST_P(SocketTest, RotatesFloat32QueriesAndKeysAsTheFormulaSays) {
  const std::vector<float> q = RandomFloats(kTokens * 32 * kHeadDim, 1);
  const std::vector<float> k = RandomFloats(kTokens * 8 * kHeadDim, 2);
  ApplyRopeArgs args = ArgsAt(100000);
  args.q = View(v1::DTYPE_FLOAT32, {1, kTokens, 32, kHeadDim}, q);
  args.k = View(v1::DTYPE_FLOAT32, {1, kTokens, 8, kHeadDim}, k);

  const auto result = client_->ApplyRope(args);

  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->q->dtype, v1::DTYPE_FLOAT32);
  EXPECT_EQ(result->q->shape, args.q->shape);
  EXPECT_EQ(result->k->shape, args.k->shape);
  ExpectRotated(*args.q, *result->q, 100000, 0);
  ExpectRotated(*args.k, *result->k, 100000, 0);
}

TEST_P(SocketTest, RotatesBfloat16QueriesAndKeysAsTheFormulaSays) {
  const auto q = ToBfloat16(RandomFloats(kTokens * 32 * kHeadDim, 3));
  const auto k = ToBfloat16(RandomFloats(kTokens * 8 * kHeadDim, 4));
  ApplyRopeArgs args = ArgsAt(4000);
  args.q = View(v1::DTYPE_BFLOAT16, {1, kTokens, 32, kHeadDim}, q);
  args.k = View(v1::DTYPE_BFLOAT16, {1, kTokens, 8, kHeadDim}, k);

  const auto result = client_->ApplyRope(args);

  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->q->dtype, v1::DTYPE_BFLOAT16);
  EXPECT_EQ(result->k->dtype, v1::DTYPE_BFLOAT16);
  ExpectRotated(*args.q, *result->q, 4000, kBfloat16Roundoff);
  ExpectRotated(*args.k, *result->k, 4000, kBfloat16Roundoff);
}

TEST_P(SocketTest, AResolvedSpecRotatesLikeItsPreset) {
  v1::ResolveRopeRequest request;
  *request.mutable_rope() = FromPreset(kPreset);
  const auto resolved = client_->ResolveRope(request);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  const std::vector<float> q = RandomFloats(kTokens * kHeadDim, 8);
  ApplyRopeArgs args = ArgsAt(70000);
  args.q = View(v1::DTYPE_FLOAT32, {1, kTokens, 1, kHeadDim}, q);
  const auto by_preset = client_->ApplyRope(args);
  ASSERT_TRUE(by_preset.ok()) << by_preset.status();

  args.rope.Clear();
  *args.rope.mutable_spec() = resolved->spec();
  const auto by_spec = client_->ApplyRope(args);

  ASSERT_TRUE(by_spec.ok()) << by_spec.status();
  EXPECT_EQ(by_spec->q->bytes, by_preset->q->bytes);
}

INSTANTIATE_TEST_SUITE_P(, SocketTest, testing::Values("tcp", "unix"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace posenc
