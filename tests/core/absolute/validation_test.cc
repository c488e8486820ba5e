// Extents of absolute encodings. Bad requests:
// tests/data/bad_requests/build_table.json.

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/absolute/encoding.h"

namespace posenc::core {
namespace {

TEST(AbsoluteValidationTest, AGridHasARowForEachCell) {
  SincosGrid encoding = {.dim = 16, .extents = {3, 4}};
  auto extents = ValidateAbsolute(encoding);
  ASSERT_TRUE(extents.ok()) << extents.status();
  EXPECT_EQ(extents->rows, 12);
  // 2^62 elements, the greatest allowed number.
  encoding.extents = {1 << 30, 1 << 28};
  extents = ValidateAbsolute(encoding);
  ASSERT_TRUE(extents.ok()) << extents.status();
  EXPECT_EQ(extents->rows, std::int64_t{1} << 58);
}

TEST(AbsoluteValidationTest, FourierFeaturesHaveTheAxesOfTheirFrequencies) {
  const std::vector<double> data(8, 1);
  FourierFeatures encoding;
  encoding.frequencies = {Dtype::kFloat64, {2, 4}, data.data()};
  const auto extents = ValidateAbsolute(encoding);
  ASSERT_TRUE(extents.ok()) << extents.status();
  EXPECT_EQ(extents->dim, 8);
  EXPECT_EQ(extents->axes, 2);
}

}  // namespace
}  // namespace posenc::core
