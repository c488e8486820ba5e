// Tables and rotations of 16 bits, which projects round differently.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/interpretation/source.h"
#include "core/rope/table.h"
#include "core/rotation/apply.h"
#include "nlohmann/json.hpp"
#include "tests/fixtures/model.h"
#include "tests/reference/float_formats.h"

namespace posenc::core::interpretation {
namespace {

using Real = long double;

// vLLM casts the table to the model's dtype, except for DeepSeek's; the service
// rotates 16-bit tensors by unrounded cosines in every profile, and rounds the
// result once. A caller can ask for a 16-bit table.
TEST(TableDtypeTest, SixteenBitsAreRotatedByUnroundedCosinesInEveryProfile) {
  constexpr reference::Format16 kFormat = reference::kBfloat16;
  constexpr int kTokens = 64, kPairs = 32, kStart = 4000;
  std::vector<std::uint16_t> x;
  for (int n = 0; n < kTokens * 2 * kPairs; ++n) {
    x.push_back(reference::Encode16(kFormat, (n * 37 % 129 - 64) / 64.0));
  }
  const Shape table_shape = {kTokens, kPairs};
  const Shape shape = {1, kTokens, 1, 2 * kPairs};
  std::vector<double> ids;
  for (int t = 0; t < kTokens; ++t) ids.push_back(kStart + t);
  const TokenPositions positions(ids, 1, 1, kTokens);
  for (const Profile profile :
       {Profile::kHf, Profile::kVllm, Profile::kDeepseek}) {
    const ResolvedRope rope = Read({{"model_type", "qwen2"},
                                    {"hidden_size", 16 * kPairs},
                                    {"num_attention_heads", 8},
                                    {"head_dim", 2 * kPairs},
                                    {"rope_theta", 1e6},
                                    {"max_position_embeddings", 32768}},
                                   profile);
    std::vector<std::uint16_t> cos(kTokens * kPairs), sin(cos), out(x.size());
    const absl::Status built =
        BuildRopeTable(rope, positions, TableLayout::kHalf, TensorRole::kKey,
                       {Dtype::kBfloat16, table_shape, cos.data()},
                       {Dtype::kBfloat16, table_shape, sin.data()});
    ASSERT_TRUE(built.ok()) << built;
    ApplyRopeArgs args;
    args.rope = LookupOf(rope.spec);
    args.layout = Layout::kBshd;
    args.positions = StartPosition{kStart};
    const ConstTensorView in = {Dtype::kBfloat16, shape, x.data()};
    const TensorView result = {Dtype::kBfloat16, shape, out.data()};
    const absl::Status applied =
        ApplyRope(args, nullptr, nullptr, &in, &result);
    ASSERT_TRUE(applied.ok()) << applied;
    Real worst_of_table = 0;
    for (int t = 0; t < kTokens; ++t) {
      for (int i = 0; i < kPairs; ++i) {
        const Real angle = ids[t] * static_cast<Real>(rope.inv_freq[i]);
        const Real c = std::cos(angle), s = std::sin(angle);
        const Real rounded_c =
            reference::Decode16(kFormat, cos[t * kPairs + i]);
        const Real rounded_s =
            reference::Decode16(kFormat, sin[t * kPairs + i]);
        const int at = t * 2 * kPairs + i;
        const Real a = reference::Decode16(kFormat, x[at]);
        const Real b = reference::Decode16(kFormat, x[at + kPairs]);
        const Real length = std::hypot(a, b);
        if (length == 0) continue;
        const auto exact = static_cast<double>(a * c - b * s);
        // In float32, the errors of cosine, sine, two products and a difference
        // are together 3 units of the pair's length. Then the result is rounded
        // once to 16 bits.
        const auto before = static_cast<double>(3 * 0x1p-24L * length);
        EXPECT_NEAR(
            reference::Decode16(kFormat, out[at]), exact,
            before + reference::HalfUlp16(kFormat, std::abs(exact) + before));
        worst_of_table =
            std::max(worst_of_table,
                     std::abs(a * rounded_c - b * rounded_s - exact) / length);
      }
    }
    // The rounding of the table to 8 bits alone causes this error: the result
    // is not rounded here.
    EXPECT_GT(worst_of_table, 0x1p-9L);
  }
}

}  // namespace
}  // namespace posenc::core::interpretation
