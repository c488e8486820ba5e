// Rotations that no message can express: they are refused and write nothing.
// Bad requests: tests/data/bad_requests.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/interpretation/source.h"
#include "core/rotation/apply.h"
#include "core/rotation/convert_pairing.h"
#include "core/rotation/reposition.h"

namespace posenc::core {
namespace {

const Shape kShape = {1, 4, 2, 8};

RopeSpec HalfSplit() { return {.pairing = Pairing::kHalfSplit}; }

void ExpectInvalid(const absl::Status& status, const char* field,
                   const std::vector<const char*>& says) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  const auto details = GetErrorDetails(status);
  ASSERT_TRUE(details.has_value()) << status;
  EXPECT_EQ(details->reason, ErrorReason::kFieldInvalid);
  EXPECT_EQ(details->field, field);
  for (const char* text : says) {
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(text));
  }
}

class RefusalsTest : public testing::Test {
 protected:
  RefusalsTest() {
    apply_.rope = interpretation::LookupOf(HalfSplit());
    apply_.positions = StartPosition{0};
    move_.old_rope = move_.new_rope = interpretation::LookupOf(HalfSplit());
    move_.movement.old_positions = StartPosition{0};
    move_.movement.target = ShiftAll{7};
  }
  absl::Status Apply(Dtype dtype = Dtype::kFloat32) {
    const ConstTensorView in = {dtype, kShape, data_.data()};
    const TensorView out = {dtype, kShape, out_.data()};
    return ApplyRope(apply_, &in, &out, nullptr, nullptr);
  }
  absl::Status Move() {
    return Reposition(move_, {Dtype::kFloat32, kShape, data_.data()},
                      {Dtype::kFloat32, kShape, out_.data()});
  }
  bool Untouched() const {
    return std::all_of(out_.begin(), out_.end(),
                       [](std::byte byte) { return byte == std::byte{9}; });
  }

  ApplyRopeArgs apply_;
  RepositionArgs move_;
  const std::vector<std::byte> data_ = std::vector<std::byte>(256);
  std::vector<std::byte> out_ = std::vector<std::byte>(256, std::byte{9});
};

TEST_F(RefusalsTest, ValuesThatAreNotOfTheirEnumAreInvalid) {
  apply_.layout = Layout{9};
  ExpectInvalid(Apply(), "layout", {"9", "BSHD"});
  apply_.layout = Layout::kBshd;
  apply_.saturation = static_cast<Saturation>(3);
  ExpectInvalid(Apply(Dtype::kFloat8E5m2), "saturation",
                {"3", "finite", "none"});
  move_.layout = Layout{};
  ExpectInvalid(Move(), "layout", {"0", "BSHD"});
  ConvertPairingArgs convert;
  convert.old_pairing = Pairing::kInterleaved;
  convert.new_pairing = static_cast<Pairing>(7);
  convert.heads = 2;
  ExpectInvalid(PairingRows::Create(convert, Dtype::kFloat32, {8, 2}).status(),
                "new_pairing", {"7"});
  EXPECT_TRUE(Untouched());
}

TEST_F(RefusalsTest, NothingIsWrittenForARequestThatIsRefused) {
  apply_.positions = StartPosition{(std::int64_t{1} << 31) - 1};
  EXPECT_FALSE(Apply().ok());
  move_.movement.target = ShiftAll{std::int64_t{1} << 31};
  EXPECT_FALSE(Move().ok());
  EXPECT_TRUE(Untouched());
  apply_.positions = StartPosition{0};
  EXPECT_TRUE(Apply().ok()) << Apply();
  EXPECT_FALSE(Untouched());
  move_.movement.target = ShiftAll{7};
  EXPECT_TRUE(Move().ok()) << Move();
}

}  // namespace
}  // namespace posenc::core
