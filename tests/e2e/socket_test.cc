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
#include "tests/fixtures/directory.h"

namespace posenc {
namespace {

using testing::HasSubstr;
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

std::vector<float> FromFloat32(absl::Span<const char> bytes) {
  std::vector<float> out(bytes.size() / 4);
  std::memcpy(out.data(), bytes.data(), 4 * out.size());
  return out;
}

template <typename T>
TensorView View(v1::Dtype dtype, std::int64_t heads,
                const std::vector<T>& values) {
  return {dtype,
          {1, static_cast<std::int64_t>(values.size()) / (heads * kHeadDim),
           heads, kHeadDim},
          {reinterpret_cast<const char*>(values.data()),
           sizeof(T) * values.size()}};
}

std::string AsString(const absl::optional<TensorView>& view) {
  return std::string(view->bytes.data(), view->bytes.size());
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
// times; the frequencies' error changes the angle; then one rounding to the
// dtype.
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

  // Rotates one head's vector at one position.
  std::vector<float> Rotate(const std::vector<float>& x, std::int64_t at) {
    ApplyRopeArgs args = ArgsAt(at);
    args.q = View(v1::DTYPE_FLOAT32, 1, x);
    const auto result = client_->ApplyRope(args);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? FromFloat32(result->q->bytes) : x;
  }

  const test::Directory directory_;
  std::unique_ptr<server::Server> server_;
  std::unique_ptr<Client> client_;
};

TEST_P(SocketTest, RotatesFloat32QueriesAndKeysAsTheFormulaSays) {
  const std::vector<float> q = RandomFloats(kTokens * 32 * kHeadDim, 1);
  const std::vector<float> k = RandomFloats(kTokens * 8 * kHeadDim, 2);
  ApplyRopeArgs args = ArgsAt(100000);
  args.q = View(v1::DTYPE_FLOAT32, 32, q);
  args.k = View(v1::DTYPE_FLOAT32, 8, k);

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
  args.q = View(v1::DTYPE_BFLOAT16, 32, q);
  args.k = View(v1::DTYPE_BFLOAT16, 8, k);

  const auto result = client_->ApplyRope(args);

  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->q->dtype, v1::DTYPE_BFLOAT16);
  EXPECT_EQ(result->k->dtype, v1::DTYPE_BFLOAT16);
  ExpectRotated(*args.q, *result->q, 4000, kBfloat16Roundoff);
  ExpectRotated(*args.k, *result->k, 4000, kBfloat16Roundoff);
}

// Rotated in float32, a pair of length r is off by at most 3u(|x| + |z|) in
// each channel, 6ur together; so a score is off by 12u|q||k|.
TEST_P(SocketTest, ScoresDependOnRelativePositionsOnly) {
  const std::vector<float> q = RandomFloats(kHeadDim, 5);
  const std::vector<float> k = RandomFloats(kHeadDim, 6);
  const auto dot = [](const std::vector<float>& a,
                      const std::vector<float>& b) {
    long double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      sum += static_cast<long double>(a[i]) * b[i];
    }
    return sum;
  };
  const long double tolerance =
      2 * 12.01L * kFloatRoundoff * std::sqrt(dot(q, q) * dot(k, k));

  const long double expected = dot(Rotate(q, 17), Rotate(k, 0));

  for (const std::int64_t shift : {1, 1000, 131071, 1 << 26}) {
    EXPECT_LE(std::abs(dot(Rotate(q, 17 + shift), Rotate(k, shift)) - expected),
              tolerance)
        << shift;
  }
  EXPECT_GT(std::abs(dot(Rotate(q, 18), Rotate(k, 0)) - expected), tolerance)
      << "scores that depend on nothing pass the check above";
}

// There are two rotations; each pair is off by at most 6ur in each of them, as
// above.
TEST_P(SocketTest, InverseUndoesForward) {
  const std::vector<float> q = RandomFloats(kTokens * 32 * kHeadDim, 7);
  ApplyRopeArgs args = ArgsAt(123456);
  args.q = View(v1::DTYPE_FLOAT32, 32, q);
  const auto forward = client_->ApplyRope(args);
  ASSERT_TRUE(forward.ok()) << forward.status();

  args.direction = v1::DIRECTION_INVERSE;
  args.q = forward->q;
  const auto back = client_->ApplyRope(args);

  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_NE(AsString(forward->q), AsString(View(v1::DTYPE_FLOAT32, 32, q)));
  const std::vector<float> result = FromFloat32(back->q->bytes);
  ASSERT_EQ(result.size(), q.size());
  long double worst = 0;
  for (std::size_t i = 0; i < q.size(); ++i) {
    const std::size_t other = i % kHeadDim < kPairs ? i + kPairs : i - kPairs;
    const long double length =
        std::hypot(static_cast<long double>(q[i]), q[other]);
    worst = std::max(
        worst, std::abs(static_cast<long double>(result[i]) - q[i]) / length);
  }
  EXPECT_LE(worst, 12.01L * kFloatRoundoff);
}

TEST_P(SocketTest, ResolvesTheFrequenciesOfTheFormula) {
  v1::ResolveRopeRequest request;
  *request.mutable_rope() = FromPreset(kPreset);

  const auto resolved = client_->ResolveRope(request);

  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->head_dim(), kHeadDim);
  EXPECT_EQ(resolved->spec().rotary_dim(), kHeadDim);
  EXPECT_EQ(resolved->spec().pairing(), v1::PAIRING_HALF_SPLIT);
  EXPECT_EQ(resolved->spec().llama3().factor(), 8);
  EXPECT_EQ(resolved->amplitude(), 1);
  EXPECT_EQ(resolved->softmax_scale_multiplier(), 1);
  EXPECT_EQ(resolved->content_hash().size(), 64u);
  ASSERT_EQ(resolved->inv_freq_size(), kPairs);
  for (int i = 0; i < kPairs; ++i) {
    EXPECT_LE(std::abs(resolved->inv_freq(i) / Frequency(i) - 1),
              kFrequencyError)
        << i;
  }
}

TEST_P(SocketTest, AResolvedSpecRotatesLikeItsPreset) {
  v1::ResolveRopeRequest request;
  *request.mutable_rope() = FromPreset(kPreset);
  const auto resolved = client_->ResolveRope(request);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  const std::vector<float> q = RandomFloats(kTokens * kHeadDim, 8);
  ApplyRopeArgs args = ArgsAt(70000);
  args.q = View(v1::DTYPE_FLOAT32, 1, q);
  const auto by_preset = client_->ApplyRope(args);
  ASSERT_TRUE(by_preset.ok()) << by_preset.status();

  args.rope.Clear();
  *args.rope.mutable_spec() = resolved->spec();
  const auto by_spec = client_->ApplyRope(args);

  ASSERT_TRUE(by_spec.ok()) << by_spec.status();
  EXPECT_EQ(AsString(by_spec->q), AsString(by_preset->q));
}

TEST_P(SocketTest, TableHoldsTheCosinesAndSinesOfTheFormula) {
  constexpr int kRows = 256, kStart = 65000;
  v1::BuildTableRequest request;
  *request.mutable_rope() = FromPreset(kPreset);
  *request.mutable_positions() = StartAt(kStart);
  request.set_rows(kRows);
  request.set_layout(v1::TABLE_LAYOUT_HALF);

  const auto table = client_->BuildTable(request);

  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->amplitude, 1);
  EXPECT_FALSE(table->table.has_value());
  EXPECT_EQ(table->cos->dtype, v1::DTYPE_FLOAT32);
  EXPECT_EQ(table->cos->shape, (std::vector<std::int64_t>{kRows, kPairs}));
  EXPECT_EQ(table->sin->shape, (std::vector<std::int64_t>{kRows, kPairs}));
  const std::vector<float> cos = FromFloat32(table->cos->bytes);
  const std::vector<float> sin = FromFloat32(table->sin->bytes);
  ASSERT_THAT(cos, SizeIs(kRows * kPairs));
  ASSERT_THAT(sin, SizeIs(kRows * kPairs));
  int failures = 0;
  for (int i = 0; i < kRows * kPairs; ++i) {
    const long double angle = (kStart + i / kPairs) * Frequency(i % kPairs);
    const auto close = [&](float got, long double expected) {
      return std::abs(got - expected) <=
             kFloatRoundoff * std::abs(expected) +
                 1.001L * kFrequencyError * std::abs(angle);
    };
    failures +=
        !close(cos[i], std::cos(angle)) || !close(sin[i], std::sin(angle));
  }
  EXPECT_EQ(failures, 0);
}

TEST_P(SocketTest, ARefusedCallSaysWhyAndTheServerGoesOn) {
  v1::ResolveRopeRequest request;
  *request.mutable_rope() = FromPreset("llama-17");

  const absl::Status unknown = client_->ResolveRope(request).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorReason(unknown), "ERROR_REASON_PRESET_UNKNOWN");
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("llama-17"));

  const std::vector<float> q = RandomFloats(kHeadDim, 9);
  ApplyRopeArgs args = ArgsAt(0);
  args.q = View(v1::DTYPE_FLOAT32, 1, q);
  args.positions.Clear();
  const absl::Status lost = client_->ApplyRope(args).status();
  EXPECT_EQ(lost.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorReason(lost), "ERROR_REASON_FIELD_REQUIRED");

  EXPECT_TRUE(client_->GetServerInfo().ok());
}

TEST_P(SocketTest, ADrainedServerIsUnavailable) {
  ASSERT_TRUE(client_->GetServerInfo().ok());

  server_->Drain();

  EXPECT_EQ(client_->GetServerInfo().status().code(),
            absl::StatusCode::kUnavailable);
}

INSTANTIATE_TEST_SUITE_P(, SocketTest, testing::Values("tcp", "unix"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace posenc
