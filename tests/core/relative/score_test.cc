// Scores with relative positions against their formulas in __float128.

#include "core/relative/score.h"

#include <gtest/gtest.h>
#include <quadmath.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/fixtures/core/relative.h"

namespace posenc::core {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

OwnedTensor Scores(const ScoreArgs& args, const OwnedTensor& q,
                   const OwnedTensor& k) {
  const absl::StatusOr<ScoreExtents> extents =
      ValidateScore(args, q.view(), k.view());
  if (!extents.ok()) {
    ADD_FAILURE() << extents.status();
    return OwnedTensor(Dtype::kFloat32, {0});
  }
  OwnedTensor scores(extents->dtype, extents->shape);
  EXPECT_TRUE(
      FillScores(args, q.view(), k.view(), 0,
                 extents->shape[0] * extents->shape[1] * extents->shape[2],
                 extents->dtype, scores.data(), [] { return absl::OkStatus(); })
          .ok());
  return scores;
}

// The sum of a formula's products, and the sum of their magnitudes.
struct Sum {
  Quad value = 0;
  Quad terms = 0;
  void Add(Quad a, Quad b) {
    value += a * b;
    terms += fabsq(a * b);
  }
};

// Element (row, channel) of the rows of a tensor [..., D].
double At(const OwnedTensor& tensor, std::int64_t row, std::int64_t channel) {
  return tensor[row * tensor.shape().back() + channel];
}

// A query or key and its position. `row` counts B * H * S.
struct Token {
  std::int64_t head;
  std::int64_t row;
  std::int64_t position;
};
// nullopt: masked.
using Formula =
    std::function<std::optional<Sum>(const Token& i, const Token& j)>;

void CheckScores(const ScoreArgs& args, const OwnedTensor& q,
                 const OwnedTensor& k, const Formula& formula) {
  const OwnedTensor scores = Scores(args, q, k);
  const std::int64_t heads = q.shape()[1], queries = q.shape()[2];
  const std::int64_t keys = k.shape()[2], width = q.shape()[3];
  const Dtype dtype = scores.view().dtype;
  std::int64_t at = 0;
  for (std::int64_t row = 0; row < q.shape()[0] * heads * queries; ++row) {
    const std::int64_t group = row / queries;
    const Token i = {group % heads, row, args.query_start + row % queries};
    for (std::int64_t key = 0; key < keys; ++key, ++at) {
      const Token j = {group % heads, group * keys + key, args.key_start + key};
      const std::optional<Sum> sum = formula(i, j);
      const auto where = [&] {
        return absl::StrCat(DtypeName(dtype), " row ", row, ", key ", key);
      };
      if (!sum.has_value()) {
        ASSERT_EQ(scores[at], -kInfinity) << where();
        continue;
      }
      ExpectRounded(scores[at], sum->value,
                    sum->terms * static_cast<double>(width + 4) * 0x1p-53,
                    dtype, where);
      if (testing::Test::HasFailure()) return;
    }
  }
}

Sum Content(const OwnedTensor& q, const OwnedTensor& k, const Token& i,
            const Token& j) {
  Sum sum;
  for (std::int64_t c = 0; c < q.shape()[3]; ++c) {
    sum.Add(At(q, i.row, c), At(k, j.row, c));
  }
  return sum;
}

struct Case {
  Dtype dtype;
  Shape q;
  Shape k;
  std::int64_t query_start;
  std::int64_t key_start;
};

// Shapes beyond one block of 32 queries and 128 keys, decode steps, odd widths.
std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Dtype dtype : kFloatingDtypes) {
    cases.push_back({dtype, {2, 2, 5, 8}, {2, 2, 7, 8}, 2, 0});
    cases.push_back({dtype, {1, 2, 35, 3}, {1, 2, 131, 3}, 96, 0});
    cases.push_back({dtype, {1, 2, 1, 1}, {1, 2, 9, 1}, 8, 0});
    cases.push_back({dtype, {2, 2, 3, 4}, {2, 2, 3, 4}, -5, -4});
  }
  return cases;
}

TEST(ShawScoreTest, IsTheFormula) {
  for (const Case& c : Cases()) {
    const OwnedTensor q = OwnedTensor::Random(c.dtype, c.q, 1);
    const OwnedTensor k = OwnedTensor::Random(Dtype::kFloat32, c.k, 2);
    for (const auto& [rows, left] : std::vector<std::pair<int, int>>{
             {9, -1}, {7, 4}, {8, 0}, {1, -1}, {301, 150}}) {
      const OwnedTensor table = OwnedTensor::Random(c.dtype, {rows, c.q[3]}, 3);
      ShawScore shaw;
      if (left != -1) shaw.left = left;
      shaw.key_table = table.view();
      ScoreArgs args = {shaw, c.query_start, c.key_start, {}};
      const std::int64_t l = left == -1 ? (rows - 1) / 2 : left;
      const std::int64_t r = rows - 1 - l;
      CheckScores(args, q, k, [&](const Token& i, const Token& j) {
        Sum sum = Content(q, k, i, j);
        const std::int64_t row = std::clamp(j.position - i.position, -l, r) + l;
        for (std::int64_t d = 0; d < c.q[3]; ++d) {
          sum.Add(At(q, i.row, d), At(table, row, d));
        }
        return sum;
      });
    }
  }
}

struct Xl {
  Xl(Dtype dtype, std::int64_t rows, std::int64_t width)
      : u(OwnedTensor::Random(dtype, {2, width}, 4)),
        v(OwnedTensor::Random(dtype, {2, width}, 5)),
        r(OwnedTensor::Random(dtype, {2, rows, width}, 6)) {}
  TransformerXlScore Make(std::int64_t clamp) const {
    TransformerXlScore xl;
    xl.clamp_distance = clamp;
    xl.u = u.view();
    xl.v = v.view();
    xl.r = r.view();
    return xl;
  }
  OwnedTensor u, v, r;
};

TEST(TransformerXlScoreTest, IsTheFormula) {
  for (const Case& c : Cases()) {
    const OwnedTensor q = OwnedTensor::Random(c.dtype, c.q, 1);
    const OwnedTensor k = OwnedTensor::Random(c.dtype, c.k, 2);
    for (const std::int64_t clamp : {0, 3, 500}) {
      // There is at least one row for each distance.
      const std::int64_t rows = clamp == 3 ? 4 : 140;
      const Xl xl(c.dtype, rows, c.q[3]);
      ScoreArgs args = {xl.Make(clamp), c.query_start, c.key_start, {}};
      CheckScores(args, q, k,
                  [&](const Token& i, const Token& j) -> std::optional<Sum> {
                    if (j.position > i.position) return std::nullopt;
                    std::int64_t distance = i.position - j.position;
                    if (clamp != 0) distance = std::min(distance, clamp);
                    Sum sum;
                    for (std::int64_t d = 0; d < c.q[3]; ++d) {
                      const Quad query = At(q, i.row, d);
                      const Quad key = At(k, j.row, d);
                      const Quad r =
                          At(xl.r, i.head * rows + rows - 1 - distance, d);
                      sum.Add(query, key);
                      sum.Add(At(xl.u, i.head, d), key);
                      sum.Add(query, r);
                      sum.Add(At(xl.v, i.head, d), r);
                    }
                    return sum;
                  });
    }
  }
}

TEST(TransformerXlScoreTest, MaskedScoresNeedNoRows) {
  const OwnedTensor q = OwnedTensor::Random(Dtype::kFloat32, {1, 2, 2, 4}, 1);
  const Xl xl(Dtype::kFloat32, 1, 4);
  const OwnedTensor scores = Scores({xl.Make(0), 0, 50, {}}, q, q);
  for (std::int64_t n = 0; n < scores.count(); ++n) {
    EXPECT_EQ(scores[n], -kInfinity);
  }
}

TEST(TransformerXlScoreTest, MemoryShiftsTheQueries) {
  // Three cached tokens, then two queries: their scores are rows 3 and 4 of the
  // scores of all five.
  const OwnedTensor all = OwnedTensor::Random(Dtype::kFloat32, {1, 2, 5, 4}, 1);
  OwnedTensor last(Dtype::kFloat32, {1, 2, 2, 4});
  for (int h = 0; h < 2; ++h) {
    for (int n = 0; n < 8; ++n) last.Set(h * 8 + n, all[h * 20 + 12 + n]);
  }
  const Xl xl(Dtype::kFloat32, 5, 4);
  const OwnedTensor whole = Scores({xl.Make(0), 0, 0, {}}, all, all);
  const OwnedTensor step = Scores({xl.Make(0), 3, 0, {}}, last, all);
  for (int h = 0; h < 2; ++h) {
    for (int n = 0; n < 10; ++n) {
      EXPECT_EQ(step[h * 10 + n], whole[h * 25 + 15 + n]);
    }
  }
}

TEST(DebertaScoreTest, IsTheFormulaForBothSignsAndEachTerm) {
  for (const Case& c : Cases()) {
    const OwnedTensor q = OwnedTensor::Random(c.dtype, c.q, 1);
    const OwnedTensor k = OwnedTensor::Random(c.dtype, c.k, 2);
    for (const DebertaBuckets& buckets :
         {DebertaBuckets{4, 16}, DebertaBuckets{32, 128},
          DebertaBuckets{0, 6}}) {
      const DebertaIndex index(buckets);  // buckets_test checks it
      const std::int64_t rows =
          2 * (buckets.bucket_size == 0 ? buckets.max_position
                                        : buckets.bucket_size);
      const OwnedTensor pk = OwnedTensor::Random(c.dtype, {2, rows, c.q[3]}, 3);
      const OwnedTensor pq = OwnedTensor::Random(c.dtype, {2, rows, c.q[3]}, 4);
      for (int mask = 0; mask < 8; ++mask) {
        DebertaScore deberta;
        deberta.buckets = buckets;
        deberta.paper_position_to_content = (mask & 4) != 0;
        if ((mask & 1) != 0) deberta.position_keys = pk.view();
        if ((mask & 2) != 0) deberta.position_queries = pq.view();
        const ScoreArgs args = {deberta, c.query_start, c.key_start, {}};
        CheckScores(args, q, k, [&](const Token& i, const Token& j) {
          Sum sum = Content(q, k, i, j);
          const std::int64_t distance = i.position - j.position;
          const std::int64_t c2p = i.head * rows + index(distance);
          const std::int64_t p2c =
              i.head * rows + index((mask & 4) != 0 ? -distance : distance);
          for (std::int64_t d = 0; d < c.q[3]; ++d) {
            if ((mask & 1) != 0) sum.Add(At(q, i.row, d), At(pk, c2p, d));
            if ((mask & 2) != 0) sum.Add(At(k, j.row, d), At(pq, p2c, d));
          }
          return sum;
        });
      }
    }
  }
}

TEST(DebertaScoreTest, Disagreement16PositionToContentReadsQueryMinusKey) {
  // One channel, k_j = 1, and position_queries[x] = x: the term is x itself.
  // Microsoft's code and transformers compute x from i - j; the paper writes j
  // - i.
  const OwnedTensor q(Dtype::kFloat32, {1, 1, 3, 1}, {0, 0, 0});
  const OwnedTensor k(Dtype::kFloat32, {1, 1, 3, 1}, {1, 1, 1});
  const OwnedTensor table(Dtype::kFloat32, {1, 8, 1}, {0, 1, 2, 3, 4, 5, 6, 7});
  DebertaScore deberta;
  deberta.buckets = {0, 4};
  deberta.position_queries = table.view();
  const OwnedTensor code = Scores({deberta, 0, 0, {}}, q, k);
  deberta.paper_position_to_content = true;
  const OwnedTensor paper = Scores({deberta, 0, 0, {}}, q, k);
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) {
      EXPECT_EQ(code[i * 3 + j], i - j + 4);
      EXPECT_EQ(paper[i * 3 + j], j - i + 4);
    }
  }
}

TEST(ScoreTest, DefaultsToFloat32ButFloat64ForFloat64) {
  const OwnedTensor table(Dtype::kFloat32, {3, 4});
  ShawScore shaw;
  shaw.key_table = table.view();
  for (const Dtype dtype : kFloatingDtypes) {
    const OwnedTensor q(dtype, {1, 1, 2, 4});
    const OwnedTensor k(Dtype::kFloat64, {1, 1, 3, 4});
    const absl::StatusOr<ScoreExtents> extents =
        ValidateScore({shaw, 0, 0, {}}, q.view(), k.view());
    ASSERT_TRUE(extents.ok());
    EXPECT_EQ(extents->dtype,
              dtype == Dtype::kFloat64 ? Dtype::kFloat64 : Dtype::kFloat32);
    EXPECT_EQ(extents->shape, (Shape{1, 1, 2, 3}));
  }
}

TEST(ScoreTest, RoundsToTheRequestedDtype) {
  const OwnedTensor q = OwnedTensor::Random(Dtype::kFloat32, {1, 1, 4, 8}, 1);
  const OwnedTensor table = OwnedTensor::Random(Dtype::kFloat32, {5, 8}, 2);
  ShawScore shaw;
  shaw.key_table = table.view();
  for (const Dtype dtype : kFloatingDtypes) {
    const ScoreArgs args = {shaw, 0, 0, dtype};
    CheckScores(args, q, q, [&](const Token& i, const Token& j) {
      Sum sum = Content(q, q, i, j);
      for (int c = 0; c < 8; ++c) {
        sum.Add(At(q, i.row, c),
                At(table,
                   std::clamp<std::int64_t>(j.position - i.position, -2, 2) + 2,
                   c));
      }
      return sum;
    });
  }
}

TEST(ScoreTest, AnyBlocksOfRowsGiveTheSameBytes) {
  const OwnedTensor q = OwnedTensor::Random(Dtype::kBfloat16, {2, 2, 45, 6}, 1);
  const OwnedTensor k =
      OwnedTensor::Random(Dtype::kBfloat16, {2, 2, 150, 6}, 2);
  const OwnedTensor shaw_table =
      OwnedTensor::Random(Dtype::kFloat32, {33, 6}, 3);
  const OwnedTensor deberta_table =
      OwnedTensor::Random(Dtype::kFloat32, {2, 64, 6}, 3);
  const Xl xl(Dtype::kFloat32, 150, 6);
  ShawScore shaw;
  shaw.key_table = shaw_table.view();
  DebertaScore deberta;
  deberta.buckets = {32, 128};
  deberta.position_keys = deberta_table.view();
  deberta.position_queries = deberta_table.view();
  for (const auto& score :
       std::vector<decltype(ScoreArgs::score)>{shaw, deberta, xl.Make(0)}) {
    const ScoreArgs args = {score, 105, 0, Dtype::kFloat16};
    const OwnedTensor whole = Scores(args, q, k);
    for (const std::int64_t rows : {1, 7, 32, 50, 179}) {
      OwnedTensor parts(Dtype::kFloat16, whole.shape());
      for (std::int64_t row = 0; row < 180; row += rows) {
        EXPECT_TRUE(FillScores(args, q.view(), k.view(), row,
                               std::min(rows, 180 - row), Dtype::kFloat16,
                               static_cast<char*>(parts.data()) + row * 150 * 2,
                               [] { return absl::OkStatus(); })
                        .ok());
      }
      EXPECT_EQ(parts.bytes(), whole.bytes()) << rows;
    }
  }
}

TEST(ScoreTest, AStopEndsItBeforeTheNextBlock) {
  const OwnedTensor q = OwnedTensor::Random(Dtype::kFloat32, {1, 1, 40, 4}, 1);
  const OwnedTensor k = OwnedTensor::Random(Dtype::kFloat32, {1, 1, 300, 4}, 2);
  const OwnedTensor table = OwnedTensor::Random(Dtype::kFloat32, {5, 4}, 3);
  ShawScore shaw;
  shaw.key_table = table.view();
  OwnedTensor scores(Dtype::kFloat64, {1, 1, 40, 300});
  int blocks = 0;  // the scores have 2 x 3 blocks
  const absl::Status status = FillScores(
      {shaw, 0, 0, {}}, q.view(), k.view(), 0, 40, Dtype::kFloat64,
      scores.data(), [&blocks] {
        ++blocks;
        return blocks < 5 ? absl::OkStatus() : absl::CancelledError();
      });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(blocks, 5);
  EXPECT_NE(scores[39 * 300], 0);
  EXPECT_EQ(scores[39 * 300 + 128], 0);
}

// Blocks of wide heads are smaller: here 6 queries and 26 keys.
TEST(ScoreTest, WideHeadsAreScoredAsOthers) {
  const OwnedTensor q =
      OwnedTensor::Random(Dtype::kFloat32, {1, 1, 7, 5000}, 1);
  const OwnedTensor k =
      OwnedTensor::Random(Dtype::kFloat32, {1, 1, 27, 5000}, 2);
  const OwnedTensor table = OwnedTensor::Random(Dtype::kFloat32, {9, 5000}, 3);
  ShawScore shaw;
  shaw.key_table = table.view();
  CheckScores({shaw, 20, 0, {}}, q, k, [&](const Token& i, const Token& j) {
    const std::int64_t row =
        std::clamp<std::int64_t>(j.position - i.position, -4, 4) + 4;
    Sum sum = Content(q, k, i, j);
    for (std::int64_t d = 0; d < 5000; ++d) {
      sum.Add(At(q, i.row, d), At(table, row, d));
    }
    return sum;
  });
}

TEST(ScoreTest, EmptyBatchesHaveEmptyScores) {
  const OwnedTensor q(Dtype::kFloat32, {0, 2, 3, 4});
  const OwnedTensor k(Dtype::kFloat32, {0, 2, 5, 4});
  const Xl xl(Dtype::kFloat32, 1, 4);
  EXPECT_EQ(Scores({xl.Make(0), 100, 0, {}}, q, k).shape(),
            (Shape{0, 2, 3, 5}));
}

}  // namespace
}  // namespace posenc::core
