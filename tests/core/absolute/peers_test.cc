// Compares the absolute encodings with recorded tables of transformers
// (data/peers/README.md). Each file names its variant; the contract's settings
// must express it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/absolute/add_encoding.h"
#include "core/absolute/encoding.h"
#include "nlohmann/json.hpp"
#include "tests/fixtures/core/absolute.h"
#include "tests/fixtures/core/peer_data.h"

namespace posenc::core {
namespace {

using nlohmann::json;
using test::TensorData;

template <typename T>
std::vector<T> List(const json& list) {
  std::vector<T> values;
  for (const json& value : list) values.push_back(value.get<T>());
  return values;
}

// The peers' angles are products of float32 with float32 frequencies; their
// sines are rounded, and written with 9 digits.
double Allowed(double position) {
  return 2.5e-7 * std::fabs(position) + 0x1p-23;
}

void ExpectRows(const std::vector<float>& actual,
                const std::vector<float>& expected,
                const std::vector<double>& positions) {
  ASSERT_EQ(actual.size(), expected.size());
  ASSERT_FALSE(actual.empty());
  const std::size_t dim = actual.size() / positions.size();
  for (std::size_t k = 0; k < actual.size(); ++k) {
    ASSERT_NEAR(actual[k], expected[k], Allowed(positions[k / dim]))
        << "position " << positions[k / dim] << ", channel " << k % dim;
  }
}

// Reads `layout` and `exponent`.
Sinusoidal Variant(const json& peer) {
  Sinusoidal encoding;
  encoding.dim = peer["d"];
  encoding.base = peer.value("base", 10000.0);
  const std::string layout = peer["layout"];
  const std::string exponent = peer["exponent"];
  encoding.order = layout == "[sin | cos]"   ? SinusoidalOrder::kSinCos
                   : layout == "[cos | sin]" ? SinusoidalOrder::kCosSin
                   : layout == "interleaved sin, cos"
                       ? SinusoidalOrder::kInterleaved
                       : SinusoidalOrder::kUnspecified;
  EXPECT_NE(encoding.order, SinusoidalOrder::kUnspecified) << layout;
  encoding.endpoint = exponent == "i/(n-1), n = d//2";
  EXPECT_TRUE(encoding.endpoint || exponent == "2i/d") << exponent;
  return encoding;
}

void CheckSinusoidal(const json& peer) {
  Sinusoidal encoding = Variant(peer);
  // If a peer shifts positions, the contract needs the shifted positions, which
  // are in `rows` (XGLM: p + 2). If positions are signed distances, the
  // contract needs the distances themselves; `rows` then count from the first
  // distance.
  std::vector<double> positions = List<double>(peer["positions"]);
  if (*std::min_element(positions.begin(), positions.end()) >= 0) {
    positions = List<double>(peer["rows"]);
  }
  if (peer.contains("padding_idx")) {
    encoding.padding_position = peer["padding_idx"];
  }
  std::vector<float> expected = TensorData(peer["table"]);
  const std::size_t dim = encoding.dim;
  // Marian: an odd width has one more sine than cosines. The contract allows
  // this in the interleaved order, which has the same channels.
  if (dim % 2 != 0 && !encoding.endpoint) {
    encoding.odd_dim_sine = true;
    if (encoding.order == SinusoidalOrder::kSinCos) {
      std::vector<float> interleaved;
      for (std::size_t k = 0; k < expected.size(); ++k) {
        const std::size_t c = k % dim;
        interleaved.push_back(
            expected[k - c + (c % 2 == 0 ? c / 2 : (dim + 1) / 2 + c / 2)]);
      }
      expected = interleaved;
      encoding.order = SinusoidalOrder::kInterleaved;
    }
  }
  ExpectRows(Build<float>(encoding, positions), expected, positions);
}

void CheckRelative(const json& peer) {
  const std::vector<double> distances = List<double>(peer["distances"]);
  ExpectRows(Build<float>(Variant(peer), distances), TensorData(peer["table"]),
             distances);
}

// Positions count the tokens that are not padding, from `past` on. They start
// after padding_idx, and the row of padding_idx is zero.
void CheckPadded(const json& peer) {
  const std::int64_t padding = peer["padding_idx"];
  const std::int64_t past = peer["past"];
  std::vector<std::int64_t> ids;
  std::int64_t batch = 0;
  for (const json& sequence : peer["input_ids"]) {
    ++batch;
    std::int64_t count = past;
    for (const json& token : sequence) {
      ids.push_back(token == padding ? padding : padding + ++count);
    }
  }
  const std::int64_t length = static_cast<std::int64_t>(ids.size()) / batch;
  Sinusoidal encoding;
  encoding.dim = peer["d"];
  encoding.order = SinusoidalOrder::kSinCos;
  encoding.endpoint = true;
  encoding.padding_position = padding;
  AddEncodingArgs args;
  args.encoding = encoding;
  args.positions = PositionIds{{Dtype::kInt64, {batch, length}, ids.data()}};
  std::vector<float> x(ids.size() * encoding.dim, 0);
  const Shape shape = {batch, length, encoding.dim};
  const absl::Status status =
      AddEncoding(args, {Dtype::kFloat32, shape, x.data()},
                  {Dtype::kFloat32, shape, x.data()});
  ASSERT_TRUE(status.ok()) << status;
  ExpectRows(x, TensorData(peer["table"]),
             std::vector<double>(ids.begin(), ids.end()));
}

void CheckTimestep(const json& peer) {
  Timestep encoding;
  encoding.dim = peer["d"];
  encoding.max_period = peer["max_period"].get<double>();
  encoding.cos_first = peer["layout"] == "[cos | sin]";
  const std::string exponent = peer["exponent"];
  if (exponent == "i/(n-1), n = d//2") encoding.downscale_freq_shift = 1;
  if (peer.contains("scale")) encoding.scale = peer["scale"].get<double>();
  std::vector<double> angles = List<double>(peer["timesteps"]);
  const std::vector<float> table = Build<float>(encoding, angles);
  for (double& angle : angles) angle *= encoding.scale.value_or(1);
  ExpectRows(table, TensorData(peer["table"]), angles);
}

void CheckGrid(const json& peer) {
  SincosGrid encoding;
  encoding.dim = peer["d"];
  encoding.extents = List<std::int32_t>(peer["grid"]);
  encoding.base = peer["base"].get<double>();
  encoding.leading_zero_rows = peer["cls"].get<bool>() ? 1 : 0;
  encoding.last_axis_first = true;  // MAE
  const std::vector<float> table = Build<float>(encoding, {});
  const int reach =
      *std::max_element(encoding.extents.begin(), encoding.extents.end());
  ExpectRows(table, TensorData(peer["table"]),
             std::vector<double>(table.size() / encoding.dim, reach));
}

// The positions count the cells of the mask that are set: down each column for
// the first half of the channels, and along each row for the second half. Both
// halves are a Sinusoidal of these counts.
void CheckMaskedGrid(const json& peer) {
  const std::vector<int> grid = List<int>(peer["grid"]);
  const int rows = grid[0];
  const int columns = grid[1];
  std::vector<double> down(rows * columns), along(rows * columns);
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) {
      const int cell = r * columns + c;
      const double seen = peer["mask"][r][c].get<double>();
      down[cell] = (r > 0 ? down[cell - columns] : 0) + seen;
      along[cell] = (c > 0 ? along[cell - 1] : 0) + seen;
    }
  }
  if (peer["normalize"].get<bool>()) {
    const double scale = peer["scale"];
    const double eps = peer["eps"];
    const std::vector<double> y = down;
    const std::vector<double> x = along;
    for (int cell = 0; cell < rows * columns; ++cell) {
      const int bottom = (rows - 1) * columns + cell % columns;
      const int right = cell / columns * columns + columns - 1;
      down[cell] = y[cell] / (y[bottom] + eps) * scale;
      along[cell] = x[cell] / (x[right] + eps) * scale;
    }
  }
  Sinusoidal half;
  half.dim = peer["d"].get<int>() / 2;
  half.base = peer["temperature"].get<double>();
  half.order = SinusoidalOrder::kInterleaved;
  const std::vector<float> expected = TensorData(peer["table"]);
  ASSERT_EQ(expected.size(), 2 * half.dim * down.size());
  int channel = 0;
  for (const std::vector<double>& positions : {down, along}) {
    const std::vector<float> table = Build<float>(half, positions);
    for (int c = 0; c < half.dim; ++c, ++channel) {
      for (std::size_t cell = 0; cell < positions.size(); ++cell) {
        // Normalizing rounds three more times.
        const double allowed =
            Allowed(positions[cell]) + 3 * 0x1p-24 * positions[cell];
        EXPECT_NEAR(table[cell * half.dim + c],
                    expected[channel * positions.size() + cell], allowed)
            << "channel " << channel << ", cell " << cell;
      }
    }
  }
}

void CheckLearned(const json& peer) {
  const std::vector<float> weight = TensorData(peer["weight"]);
  LearnedTable encoding;
  encoding.table = {Dtype::kFloat32,
                    List<std::int64_t>(peer["weight"]["shape"]), weight.data()};
  // BART: position p reads row p + 2.
  std::vector<double> positions;
  for (int t = 0; t < peer["length"]; ++t) {
    positions.push_back(2 + peer["past"].get<int>() + t);
  }
  EXPECT_EQ(Build<float>(encoding, positions), TensorData(peer["out"]));
}

class AbsolutePeerTest : public testing::TestWithParam<std::string> {};

TEST_P(AbsolutePeerTest, TheContractExpressesThePeersTable) {
  const json peer = test::LoadPeer("absolute", GetParam());
  const std::string kind = peer["kind"];
  if (kind == "sinusoidal") return CheckSinusoidal(peer);
  if (kind == "sinusoidal_relative") return CheckRelative(peer);
  if (kind == "sinusoidal_padded") return CheckPadded(peer);
  if (kind == "timestep") return CheckTimestep(peer);
  if (kind == "grid_sincos") return CheckGrid(peer);
  if (kind == "grid_sine_masked") return CheckMaskedGrid(peer);
  if (kind == "learned") return CheckLearned(peer);
  FAIL() << "unknown kind " << kind;
}

INSTANTIATE_TEST_SUITE_P(Peers, AbsolutePeerTest,
                         testing::ValuesIn(test::PeerCases("absolute")),
                         [](const auto& info) {
                           return test::TestName(info.param);
                         });

TEST(AbsolutePeersTest, AllRecordedTablesAreRead) {
  EXPECT_GE(test::PeerCases("absolute").size(), 15U);
}

}  // namespace
}  // namespace posenc::core
