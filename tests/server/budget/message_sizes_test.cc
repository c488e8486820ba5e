// What is expected of messages that are not announced.

#include "server/budget/message_sizes.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace posenc::server {
namespace {

constexpr std::int64_t kLarge = std::int64_t{64} << 20;
constexpr std::int64_t kMostNew = std::int64_t{1} << 20;

TEST(MessageSizesTest, OnePeersLargeMessagesAreNotExpectedOfAnother) {
  MessageSizes sizes(2);
  sizes.Learn(0, 1, 100);
  for (int i = 0; i < 10; ++i) sizes.Learn(0, 2, kLarge);
  EXPECT_EQ(sizes.Expect(0, 1, kMostNew), MessageSizes::kLeast);
  EXPECT_EQ(sizes.Expect(0, 2, kMostNew), 2 * kLarge);
  EXPECT_EQ(sizes.Expect(1, 2, kMostNew), MessageSizes::kLeast)
      << "another method";
}

TEST(MessageSizesTest, OfAStrangerIsExpectedWhatAllHaveSentIfThatIsLittle) {
  MessageSizes sizes(1);
  EXPECT_EQ(sizes.Expect(0, 1, kMostNew), MessageSizes::kLeast);
  sizes.Learn(0, 1, 400'000);
  EXPECT_EQ(sizes.Expect(0, 2, kMostNew), 400'000);
  sizes.Learn(0, 1, kLarge);
  EXPECT_EQ(sizes.Expect(0, 2, kMostNew), kMostNew);
}

TEST(MessageSizesTest, WhoSentMoreThanThereWasMemoryForIsExpectedToSendMore) {
  MessageSizes sizes(1);
  sizes.LearnMore(0, 1, kMostNew);
  EXPECT_EQ(sizes.Expect(0, 1, kMostNew), 4 * kMostNew);
  EXPECT_EQ(sizes.Expect(0, 2, kMostNew), MessageSizes::kLeast);
  sizes.LearnMore(0, 1, 4 * kMostNew);
  EXPECT_EQ(sizes.Expect(0, 1, kMostNew), 16 * kMostNew);
}

TEST(MessageSizesTest, PeersThatComeWithoutEndAreForgotten) {
  MessageSizes sizes(1);
  sizes.Learn(0, 0, kLarge);
  for (std::uint64_t peer = 1; peer <= MessageSizes::kMostKnown; ++peer) {
    sizes.Learn(0, peer, 1);
  }
  EXPECT_EQ(sizes.Expect(0, 0, kMostNew), MessageSizes::kLeast);
}

}  // namespace
}  // namespace posenc::server
