#include "core/relative/score.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/positions/positions.h"
#include "core/relative/check.h"
#include "core/relative/panels.h"

namespace posenc::core {
namespace {

// Scores are computed in blocks of queries and keys whose channels stay in the
// cache while every query is multiplied with every key. Wide heads have smaller
// blocks, of a few MiB at most.
constexpr std::int64_t kBlockRows = 32;
constexpr std::int64_t kBlockKeys = 128;
constexpr std::int64_t kFullBlockWidth = 1024;

std::int64_t BlockExtent(std::int64_t full, std::int64_t width) {
  return std::clamp<std::int64_t>(full * kFullBlockWidth / width, 1, full);
}

constexpr double kMasked = -std::numeric_limits<double>::infinity();

// Products of q_i, or of k_j, with a table's row for the distance i - j.
struct PositionTerm {
  const ConstTensorView* table = nullptr;
  bool per_head = false;  // [H, rows, D], else [rows, D]
  std::function<std::int64_t(std::int64_t)> row;  // monotone in the distance
};

struct ScoreTerms {
  const ConstTensorView* content_bias = nullptr;   // u
  const ConstTensorView* position_bias = nullptr;  // v
  PositionTerm of_query;
  PositionTerm of_key;
  bool masked = false;
};

std::int32_t Left(const ShawScore& shaw) {
  return shaw.left.value_or(
      static_cast<std::int32_t>((shaw.key_table->shape[0] - 1) / 2));
}

ScoreTerms Terms(const ShawScore& shaw) {
  ScoreTerms terms;
  const std::int32_t left = Left(shaw);
  const ClippedDistance clip = {
      left, static_cast<std::int32_t>(shaw.key_table->shape[0] - 1 - left)};
  terms.of_query = {&*shaw.key_table, false, [clip](std::int64_t distance) {
                      return ClippedIndex(clip, -distance);
                    }};
  return terms;
}

ScoreTerms Terms(const TransformerXlScore& xl) {
  ScoreTerms terms;
  terms.content_bias = &*xl.u;
  terms.position_bias = &*xl.v;
  const std::int64_t last = xl.r->shape[1] - 1;
  const std::int64_t greatest =
      xl.clamp_distance > 0 ? std::min(xl.clamp_distance, last) : last;
  // Negative distances are masked, so they may read any row.
  terms.of_query = {&*xl.r, true, [last, greatest](std::int64_t distance) {
                      return last -
                             std::clamp<std::int64_t>(distance, 0, greatest);
                    }};
  terms.masked = true;
  return terms;
}

ScoreTerms Terms(const DebertaScore& deberta) {
  ScoreTerms terms;
  const DebertaIndex index(deberta.buckets);
  if (deberta.position_keys.has_value()) {
    terms.of_query = {&*deberta.position_keys, true, index};
  }
  if (deberta.position_queries.has_value()) {
    const std::int64_t sign = deberta.paper_position_to_content ? -1 : 1;
    terms.of_key = {&*deberta.position_queries, true,
                    [index, sign](std::int64_t distance) {
                      return index(sign * distance);
                    }};
  }
  return terms;
}

ScoreTerms Terms(std::monostate) { return {}; }

// One block: the scores of `rows` queries of a head with `keys` keys.
// `distance` is the distance from the first query to the first key; the
// distance from query r to key j of the block is distance + r - j.
struct Block {
  std::int64_t head = 0;
  std::int64_t rows = 0;
  std::int64_t keys = 0;
  std::int64_t distance = 0;
};

// The distances of a block repeat along its diagonals. The rows * keys pairs
// have only rows + keys - 1 distances, and each distance needs one row of a
// position table. So a query is multiplied with each of these rows only once,
// and each key then uses the product for its distance. The distances are
// numbered; a number is called a slot. Slot 0 is the smallest distance, from
// the first query to the last key:
//
//   slot    key 0  key 1  key 2
//   row 0     2      1      0
//   row 1     3      2      1
class BlockScorer {
 public:
  BlockScorer(const ScoreTerms& terms, std::int64_t width)
      : terms_(terms),
        width_(width),
        rows_(BlockExtent(kBlockRows, width)),
        block_keys_(BlockExtent(kBlockKeys, width)),
        content_(rows_ * width),
        position_(rows_ * width),
        keys_(block_keys_ * width),
        panels_(PanelsSize(block_keys_, width)),
        scores_(rows_ * block_keys_),
        index_(rows_ + block_keys_ - 1) {}

  // Extents of the largest block.
  std::int64_t rows() const { return rows_; }
  std::int64_t keys() const { return block_keys_; }

  void LoadQueries(const ConstTensorView& q, std::int64_t first,
                   const Block& block) {
    LoadDoubles(q, first * width_, block.rows * width_, content_.data());
    std::copy_n(content_.begin(), block.rows * width_, position_.begin());
    AddBias(terms_.content_bias, block, &content_);
    AddBias(terms_.position_bias, block, &position_);
  }

  // Returns the scores of the loaded queries with block.keys keys, which start
  // at row `first` of k: one row for each query.
  const std::vector<double>& Score(const ConstTensorView& k, std::int64_t first,
                                   const Block& block) {
    LoadDoubles(k, first * width_, block.keys * width_, keys_.data());
    ArrangePanels(keys_.data(), block.keys, width_, panels_.data());
    for (std::int64_t r = 0; r < block.rows; ++r) {
      DotPanels(&content_[r * width_], panels_.data(), width_, block.keys,
                &scores_[r * block.keys]);
    }
    AddTerm(terms_.of_query, position_, false, block);
    AddTerm(terms_.of_key, keys_, true, block);
    if (terms_.masked) Mask(block);
    return scores_;
  }

 private:
  void AddBias(const ConstTensorView* bias, const Block& block,
               std::vector<double>* queries) const {
    if (bias == nullptr) return;
    std::vector<double> row(width_);
    LoadDoubles(*bias, block.head * width_, width_, row.data());
    for (std::int64_t i = 0; i < block.rows * width_; ++i) {
      (*queries)[i] += row[i % width_];
    }
  }

  // Loads the rows of the term's table that the block needs; returns the number
  // of rows. index_[s] is the loaded row for the distance `nearest` + s.
  // `nearest` is the distance from the first query to the last key.
  std::int64_t LoadTable(const PositionTerm& term, const Block& block) {
    const std::int64_t nearest = block.distance - (block.keys - 1);
    const std::int64_t n = block.rows + block.keys - 1;
    for (std::int64_t s = 0; s < n; ++s) index_[s] = term.row(nearest + s);
    const auto [low, high] = std::minmax(index_[0], index_[n - 1]);
    const std::int64_t first = low;
    const std::int64_t rows = high - low + 1;
    for (std::int64_t s = 0; s < n; ++s) index_[s] -= first;
    const std::int64_t head_rows = term.per_head ? term.table->shape[1] : 0;
    table_rows_.resize(rows * width_);
    LoadDoubles(*term.table, (block.head * head_rows + first) * width_,
                rows * width_, table_rows_.data());
    table_.resize(PanelsSize(rows, width_));
    ArrangePanels(table_rows_.data(), rows, width_, table_.data());
    products_.resize(rows);
    return rows;
  }

  // Adds the products of the term's table with `vectors`. `vectors` are the
  // keys if `of_keys`, else the queries.
  void AddTerm(const PositionTerm& term, const std::vector<double>& vectors,
               bool of_keys, const Block& block) {
    if (term.table == nullptr) return;
    const std::int64_t n = LoadTable(term, block);
    const std::int64_t count = of_keys ? block.keys : block.rows;
    const std::int64_t others = of_keys ? block.rows : block.keys;
    for (std::int64_t i = 0; i < count; ++i) {
      DotPanels(&vectors[i * width_], table_.data(), width_, n,
                products_.data());
      for (std::int64_t o = 0; o < others; ++o) {
        const std::int64_t r = of_keys ? o : i, j = of_keys ? i : o;
        const std::int64_t slot = r - j + block.keys - 1;
        scores_[r * block.keys + j] += products_[index_[slot]];
      }
    }
  }

  void Mask(const Block& block) {
    for (std::int64_t r = 0; r < block.rows; ++r) {
      const std::int64_t visible =
          std::clamp<std::int64_t>(block.distance + r + 1, 0, block.keys);
      std::fill(&scores_[r * block.keys] + visible,
                &scores_[r * block.keys] + block.keys, kMasked);
    }
  }

  const ScoreTerms& terms_;
  const std::int64_t width_, rows_, block_keys_;
  std::vector<double> content_, position_;  // [rows, D]
  std::vector<double> keys_, panels_;       // [keys, D], and in panels
  std::vector<double> table_rows_, table_, products_;
  std::vector<double> scores_;
  std::vector<std::int64_t> index_;
};

absl::Status CheckContent(const ConstTensorView& q, const ConstTensorView& k) {
  Faults faults;
  faults.Note(CheckFloating("q.dtype", q.dtype));
  faults.Note(CheckFloating("k.dtype", k.dtype));
  for (const auto& [field, shape, named] :
       {std::tuple("q.shape", &q.shape, "[B, H, Sq, D]"),
        std::tuple("k.shape", &k.shape, "[B, H, Sk, D]")}) {
    if (shape->size() == 4) continue;
    faults.Note(
        FieldInvalid(field, absl::StrCat(ShapeToString(*shape), " has rank ",
                                         shape->size(), "; must be ", named)));
  }
  if (q.shape.size() != 4) return faults.status();
  if (q.shape[3] < 1) {
    faults.Note(FieldInvalid(
        "q.shape", absl::StrCat("D is ", q.shape[3], "; must be at least 1")));
  } else if (faults.Note(CheckWidth("q.shape", "D", q.shape[3])) &&
             k.shape.size() == 4 &&
             (k.shape[0] != q.shape[0] || k.shape[1] != q.shape[1] ||
              k.shape[3] != q.shape[3])) {
    const std::string expected =
        absl::StrCat("[B = ", q.shape[0], ", H = ", q.shape[1],
                     ", Sk, D = ", q.shape[3], "], as q");
    faults.Note(WrongShape("k.shape", expected, ShapeToString(k.shape)));
  }
  return faults.status();
}

// The extents and distances of a call, with which Check() compares the terms.
struct Content {
  std::int64_t heads = 0;
  std::int64_t width = 0;
  std::int64_t nearest = 0;   // distance from the first query to the first key
  std::int64_t farthest = 0;  // from the last query to the first key
  bool empty = false;         // no pair of query and key
};

absl::Status Check(std::monostate, const Content& /*content*/) {
  return FieldRequired("", "not set; say which scores to compute");
}

absl::Status Check(const ShawScore& shaw, const Content& content) {
  RETURN_IF_ERROR(CheckTensor("key_table", shaw.key_table,
                              {{"rows"}, {"D", content.width}}));
  const std::int64_t rows = shaw.key_table->shape[0];
  if (!shaw.left.has_value()) {
    if (rows % 2 != 0) return absl::OkStatus();
    return FieldRequired(
        "left", absl::StrCat("not set, and key_table has ", rows,
                             " rows, an even number; say how many distances "
                             "reach to the left"));
  }
  if (*shaw.left >= 0 && *shaw.left < rows) return absl::OkStatus();
  return FieldInvalid("left",
                      absl::StrCat(*shaw.left, ", and key_table has ", rows,
                                   " rows; must be 0 .. ", rows - 1));
}

absl::Status Check(const TransformerXlScore& xl, const Content& content) {
  if (xl.clamp_distance < 0) {
    return MustBe("clamp_distance", xl.clamp_distance,
                  ">= 0, and 0 means no clamp");
  }
  const NamedExtent heads = {"H", content.heads};
  const NamedExtent width = {"D", content.width};
  RETURN_IF_ERROR(CheckTensor("u", xl.u, {heads, width}));
  RETURN_IF_ERROR(CheckTensor("v", xl.v, {heads, width}));
  RETURN_IF_ERROR(CheckTensor("r", xl.r, {heads, {"R"}, width}));
  const std::int64_t needed =
      xl.clamp_distance > 0 ? std::min(xl.clamp_distance, content.farthest)
                            : content.farthest;
  if (content.empty || needed < xl.r->shape[1]) return absl::OkStatus();
  // The first query whose distance from the first key has no row in r.
  const std::int64_t query =
      std::max<std::int64_t>(0, xl.r->shape[1] - content.nearest);
  return PositionOutOfRange(
      "r",
      absl::StrCat("has ", xl.r->shape[1], " rows, for distances up to ",
                   xl.r->shape[1] - 1,
                   ", but the last query and first key are ", content.farthest,
                   " apart",
                   xl.clamp_distance > 0
                       ? absl::StrCat(", clamped to ", xl.clamp_distance)
                       : "",
                   "; send ", needed + 1, " rows, or set clamp_distance"),
      query);
}

absl::Status Check(const DebertaScore& deberta, const Content& content) {
  RETURN_IF_ERROR(Prefixed("buckets", ValidateDeberta(deberta.buckets)));
  const std::int64_t span = deberta.buckets.bucket_size == 0
                                ? deberta.buckets.max_position
                                : deberta.buckets.bucket_size;
  const std::vector<NamedExtent> extents = {
      {"H", content.heads}, {"2 * span", 2 * span}, {"D", content.width}};
  for (const auto& [field, table] :
       {std::pair("position_keys", &deberta.position_keys),
        std::pair("position_queries", &deberta.position_queries)}) {
    if (!table->has_value()) continue;
    RETURN_IF_ERROR(CheckTensor(field, *table, extents));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ScoreExtents> ValidateScore(const ScoreArgs& args,
                                           const ConstTensorView& q,
                                           const ConstTensorView& k) {
  constexpr const char* kFields[] = {"score", "score.shaw",
                                     "score.transformer_xl", "score.deberta"};
  RETURN_IF_ERROR(CheckContent(q, k));
  const std::int64_t queries = q.shape[2];
  const std::int64_t keys = k.shape[2];
  Faults faults;
  faults.Note(
      CheckRun("query_start", args.query_start, queries, 0, queries - 1));
  faults.Note(CheckRun("key_start", args.key_start, keys, 0, keys - 1));
  ScoreExtents extents;
  extents.dtype = args.dtype.value_or(
      q.dtype == Dtype::kFloat64 ? Dtype::kFloat64 : Dtype::kFloat32);
  faults.Note(CheckFloating("dtype", extents.dtype));
  RETURN_IF_ERROR(faults.status());
  extents.shape = {q.shape[0], q.shape[1], queries, keys};
  const absl::StatusOr<std::int64_t> count = ElementCount(extents.shape);
  RETURN_IF_ERROR(Prefixed("score", count.status()));
  const std::int64_t nearest = args.query_start - args.key_start;
  const Content content = {q.shape[1], q.shape[3], nearest,
                           nearest + queries - 1, *count == 0};
  RETURN_IF_ERROR(Prefixed(
      kFields[args.score.index()],
      std::visit(
          [&content](const auto& score) { return Check(score, content); },
          args.score)));
  return extents;
}

absl::Status FillScores(const ScoreArgs& args, const ConstTensorView& q,
                        const ConstTensorView& k, std::int64_t first_row,
                        std::int64_t rows, Dtype dtype, void* out,
                        absl::FunctionRef<absl::Status()> stop) {
  const std::int64_t heads = q.shape[1];
  const std::int64_t queries = q.shape[2];
  const std::int64_t keys = k.shape[2];
  const ScoreTerms terms =
      std::visit([](const auto& score) { return Terms(score); }, args.score);
  BlockScorer scorer(terms, q.shape[3]);
  char* bytes = static_cast<char*>(out);
  for (std::int64_t done = 0; done < rows;) {
    const std::int64_t group = (first_row + done) / queries;  // b * H + h
    const std::int64_t query = (first_row + done) % queries;
    Block block;
    block.head = group % heads;
    block.rows = std::min({scorer.rows(), rows - done, queries - query});
    scorer.LoadQueries(q, first_row + done, block);
    for (std::int64_t key = 0; key < keys; key += scorer.keys()) {
      RETURN_IF_ERROR(stop());
      block.keys = std::min(scorer.keys(), keys - key);
      block.distance = args.query_start + query - (args.key_start + key);
      const std::vector<double>& scores =
          scorer.Score(k, group * keys + key, block);
      for (std::int64_t r = 0; r < block.rows; ++r) {
        StoreDoubles(&scores[r * block.keys], block.keys, dtype,
                     bytes + ((done + r) * keys + key) * DtypeSize(dtype));
      }
    }
    done += block.rows;
  }
  return absl::OkStatus();
}

}  // namespace posenc::core
