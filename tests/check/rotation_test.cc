// Tests the independent rotation: an oracle that accepts everything, or checks
// the wrong channels, would make all tests that use it pass.

#include "client/tools/check/rotation.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "client/tools/check/element.h"
#include "client/tools/check/heads.h"
#include "client/tools/check/rotated_heads.h"
#include "client/tools/check/rounding.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace posenc::check {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TensorView View(const std::vector<std::int64_t>& shape,
                const std::vector<float>& elements) {
  return {v1::DTYPE_FLOAT32,
          shape,
          {reinterpret_cast<const char*>(elements.data()),
           elements.size() * sizeof(float)}};
}

std::vector<std::pair<int, int>> AllChannels(const PairLayout& layout) {
  std::vector<std::pair<int, int>> channels;
  for (std::int64_t i = 0; i < layout.pairs; ++i) {
    const PairChannels pair = layout.Channels(i);
    channels.emplace_back(pair.x, pair.y);
  }
  return channels;
}

TEST(PairLayoutTest, PairsLieAsTheContractSays) {
  EXPECT_THAT(AllChannels({true, 0, 3, {}}),
              ElementsAre(Pair(0, 1), Pair(2, 3), Pair(4, 5)));
  EXPECT_THAT(AllChannels({false, 0, 3, {}}),
              ElementsAre(Pair(0, 3), Pair(1, 4), Pair(2, 5)));
  EXPECT_THAT(AllChannels({false, 10, 2, {}}),
              ElementsAre(Pair(10, 12), Pair(11, 13)));
}

TEST(PairLayoutTest, EveryAxisOfHalvesIsPairedInItself) {
  EXPECT_THAT(AllChannels({false, 4, 3, {2, 1}}),
              ElementsAre(Pair(4, 6), Pair(5, 7), Pair(8, 9)));
  EXPECT_THAT(AllChannels({true, 4, 3, {2, 1}}),
              ElementsAre(Pair(4, 5), Pair(6, 7), Pair(8, 9)));
}

TEST(RotatePairTest, AQuarterTurnTakesXToYAndScales) {
  const RotatedPair<double> turned = RotatePair(3.0, 4.0, 0.0, 2.0);
  EXPECT_EQ(turned.x, -8);
  EXPECT_EQ(turned.y, 6);
}

TEST(RotatePairTest, TermsDoNotCancel) {
  const double half = std::sqrt(0.5);
  const RotatedPair<double> turned = RotatePair(1.0, 1.0, half, half);
  EXPECT_EQ(turned.x, 0);
  EXPECT_EQ(turned.x_terms, 2 * half);
  EXPECT_EQ(turned.y_terms, 2 * half);
}

TEST(HeadIndexTest, EveryLayoutHasItsStrides) {
  const HeadIndex bshd = HeadIndex::Of("bshd", {2, 3, 5, 7});
  EXPECT_EQ(bshd.Offset(1, 2, 4), ((1 * 3 + 2) * 5 + 4) * 7);
  const HeadIndex bhsd = HeadIndex::Of("bhsd", {2, 5, 3, 7});
  EXPECT_EQ(bhsd.Offset(1, 2, 4), ((1 * 5 + 4) * 3 + 2) * 7);
  const HeadIndex sbhd = HeadIndex::Of("sbhd", {3, 2, 5, 7});
  EXPECT_EQ(sbhd.Offset(1, 2, 4), ((2 * 2 + 1) * 5 + 4) * 7);
  const HeadIndex thd = HeadIndex::Of("thd", {3, 5, 7});
  EXPECT_EQ(thd.Offset(0, 2, 4), (2 * 5 + 4) * 7);
  for (const HeadIndex& index : {bshd, bhsd, sbhd}) EXPECT_EQ(index.batch, 2);
  EXPECT_EQ(thd.batch, 1);
  for (const HeadIndex& index : {bshd, bhsd, sbhd, thd}) {
    EXPECT_EQ(index.tokens, 3);
    EXPECT_EQ(index.heads, 5);
    EXPECT_EQ(index.head_dim, 7);
  }
}

TEST(HeadsViewTest, AShapeOfAnotherRankIsRefused) {
  const auto view = HeadsView::Of(View({1, 1, 2}, {1, 2}), v1::LAYOUT_BSHD);
  EXPECT_EQ(view.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(view.status().message()),
              HasSubstr("[1, 1, 2] has 3 extents; the layout has 4"));
}

// Computes the number by powers of two, in another way than element.cc.
double Float8Number(int code, int mantissa_bits, int bias) {
  const int fraction = code & ((1 << mantissa_bits) - 1);
  const int exponent = code >> mantissa_bits;
  const double one = 1 << mantissa_bits;
  return exponent == 0 ? std::exp2(1 - bias) * (fraction / one)
                       : std::exp2(exponent - bias) * (1 + fraction / one);
}

TEST(ElementTest, ReadsAndWritesEveryNumberOfFloat8) {
  struct Case {
    v1::Dtype dtype;
    int mantissa_bits, bias, largest;
  };
  for (const Case& c : {Case{v1::DTYPE_FLOAT8_E4M3FN, 3, 7, 0x7e},
                        Case{v1::DTYPE_FLOAT8_E5M2, 2, 15, 0x7b}}) {
    for (int code = 0; code <= c.largest; ++code) {
      const double number = Float8Number(code, c.mantissa_bits, c.bias);
      for (const int sign : {0, 0x80}) {
        char byte = static_cast<char>(code | sign);
        const TensorView one = {c.dtype, {1}, {&byte, 1}};
        EXPECT_EQ(ElementAt(one, 0), sign != 0 ? -number : number);
        char written = 0;
        SetElement(c.dtype, &written, 0,
                   static_cast<float>(sign != 0 ? -number : number));
        EXPECT_EQ(written, byte);
      }
      // A number halfway to the next one rounds to the even one of the two.
      if (code == c.largest) continue;
      const double next = Float8Number(code + 1, c.mantissa_bits, c.bias);
      char written = 0;
      SetElement(c.dtype, &written, 0, static_cast<float>((number + next) / 2));
      EXPECT_EQ(written, code % 2 == 0 ? code : code + 1);
    }
    char written = 0;
    SetElement(c.dtype, &written, 0, -1e30f);
    EXPECT_EQ(written, static_cast<char>(c.largest | 0x80));
    EXPECT_EQ(LargestFinite(c.dtype),
              Float8Number(c.largest, c.mantissa_bits, c.bias));
  }
}

TEST(RoundingBoundTest, AllowsTheArithmeticAndOneRoundingButNoMore) {
  const RoundingBound bfloat16(v1::DTYPE_BFLOAT16);
  // 1 and 1 + 2^-7 are neighbours: up to the middle, 1 is the nearest.
  EXPECT_TRUE(bfloat16.Allows(1, 1 + 0x1p-8L, 1, 0));
  EXPECT_FALSE(bfloat16.Allows(1, 1 + 0x1.01p-8L, 1, 0));
  EXPECT_TRUE(bfloat16.Allows(1, 1 + 0x1.01p-8L, 1, 0x1p-16));
  const RoundingBound float32(v1::DTYPE_FLOAT32);
  EXPECT_TRUE(float32.Allows(1, 1 + 8 * 0x1p-24L, 1, 0));
  EXPECT_FALSE(float32.Allows(1, 1 + 10 * 0x1p-24L, 1, 0));
  EXPECT_FALSE(
      float32.Allows(std::numeric_limits<double>::quiet_NaN(), 1, 1, 0));
  const RoundingBound float64(v1::DTYPE_FLOAT64);
  EXPECT_FALSE(float64.Allows(1, 1 + 0x1p-24L, 1, 0));
}

// One token, two heads of three channels. The last two channels are a pair,
// which position 2 rotates by a quarter turn.
class VisitTest : public testing::Test {
 protected:
  VisitTest() {
    rotation_.frequencies = {std::acos(-1.0L) / 4};
    rotation_.attention_factor = 0.5L;
    rotation_.before.first = rotation_.after.first = 1;
    rotation_.before.pairs = rotation_.after.pairs = 1;
    rotation_.angle_error = 0x1p-20L;
  }

  std::vector<RotatedElement> Visit(const std::vector<float>& after,
                                    std::size_t end = 99) {
    std::vector<RotatedElement> elements;
    VisitRotatedHeads(
        rotation_, *HeadsView::Of(View({1, 1, 2, 3}, before_), v1::LAYOUT_BSHD),
        *HeadsView::Of(View({1, 1, 2, 3}, after), v1::LAYOUT_BSHD),
        [](std::int64_t token) -> long double { return 2 + token; },
        /*token_step=*/1,
        [&](const RotatedElement& element) {
          elements.push_back(element);
          return elements.size() < end;
        });
    return elements;
  }

  TokenRotation rotation_;
  const std::vector<float> before_ = {7, 2, 0, 8, 0, 4};
};

TEST_F(VisitTest, EveryElementComesOnceWithItsExactValue) {
  const std::vector<RotatedElement> elements = Visit({7, 10, 11, 9, 12, 13});
  ASSERT_EQ(elements.size(), 6u);
  const std::int64_t index[] = {1, 2, 0, 4, 5, 3};
  const double actual[] = {10, 11, 7, 12, 13, 9};
  const double exact[] = {0, 1, 7, -2, 0, 8};
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(elements[i].index, index[i]);
    EXPECT_EQ(elements[i].actual, actual[i]);
    EXPECT_NEAR(static_cast<double>(elements[i].exact), exact[i], 1e-18);
    EXPECT_EQ(elements[i].passes_through, i % 3 == 2);
  }
  EXPECT_TRUE(elements[2].same_bytes);
  EXPECT_FALSE(elements[5].same_bytes);
  // The angle, pi / 2, times 2^-20, times the pair's length 2 and the factor.
  EXPECT_NEAR(static_cast<double>(elements[0].from_angle),
              std::acos(-1.0) / 2 * 0x1p-20, 1e-18);
}

TEST_F(VisitTest, ReverseTurnsTheOtherWay) {
  rotation_.reverse = true;
  EXPECT_NEAR(static_cast<double>(Visit(before_)[1].exact), -1, 1e-18);
}

TEST_F(VisitTest, AnotherOutputPairingIsWhereResultsAreLookedFor) {
  rotation_.frequencies.push_back(0);
  rotation_.before = {false, 0, 2, {}};
  rotation_.after = {true, 0, 2, {}};
  const std::vector<float> before = {1, 2, 3, 4}, after = {5, 6, 7, 8};
  std::vector<double> actual, input;
  VisitRotatedHeads(
      rotation_, *HeadsView::Of(View({1, 1, 4}, before), v1::LAYOUT_THD),
      *HeadsView::Of(View({1, 1, 4}, after), v1::LAYOUT_THD),
      [](std::int64_t) { return 0.0L; }, 1,
      [&](const RotatedElement& element) {
        actual.push_back(element.actual);
        input.push_back(static_cast<double>(element.x));
        return true;
      });
  EXPECT_THAT(actual, ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(input, ElementsAre(1, 1, 2, 2));
}

TEST_F(VisitTest, AVisitThatReturnsFalseIsTheLast) {
  for (const std::size_t end : {1u, 2u, 3u, 4u}) {
    EXPECT_EQ(Visit(before_, end).size(), end);
  }
}

TEST_F(VisitTest, TokensBetweenStepsAreLeftOut) {
  const std::vector<float> tokens = {1, 2, 3, 4, 5, 6};
  rotation_.before.first = rotation_.after.first = 0;
  const HeadsView view =
      *HeadsView::Of(View({3, 1, 2}, tokens), v1::LAYOUT_THD);
  std::vector<std::int64_t> seen;
  VisitRotatedHeads(
      rotation_, view, view, [](std::int64_t) { return 0.0L; },
      /*token_step=*/2,
      [&](const RotatedElement& element) {
        seen.push_back(element.index);
        return true;
      });
  EXPECT_THAT(seen, ElementsAre(0, 1, 4, 5));
}

}  // namespace
}  // namespace posenc::check
