// Splits messages into tensor bytes and the rest, and compares the result with
// that of protobuf's own parser.

#include "posenc/wire/split.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "posenc/compat.h"
#include "posenc/v1/service.pb.h"
#include "tests/fuzz/split_check.h"

namespace posenc::wire {
namespace {

constexpr int kTensorFields[] = {14, 15};

std::string Text(const BorrowedBytes& bytes) {
  std::string text;
  for (const auto piece : bytes.pieces) text.append(piece.data(), piece.size());
  return text;
}

v1::ApplyRopeRequest Request() {
  v1::ApplyRopeRequest request;
  request.mutable_rope()->mutable_spec()->set_rotary_dim(4);
  request.mutable_rope()->mutable_spec()->mutable_linear()->set_factor(2);
  request.mutable_rope()->set_sequence_length(4096);
  request.mutable_positions()->mutable_starts()->add_values(-3);
  request.set_layout(v1::LAYOUT_BSHD);
  request.mutable_q()->set_dtype(v1::DTYPE_FLOAT32);
  for (const int extent : {1, 2, 1, 300})
    request.mutable_q()->add_shape(extent);
  request.mutable_q()->set_data(std::string(2400, 'q'));
  request.mutable_k()->set_dtype(v1::DTYPE_BFLOAT16);
  request.mutable_k()->add_values(1.5);
  request.mutable_k()->set_data("kkkk");
  return request;
}

// A record of bytes: field, length, contents.
std::string Record(int field, const std::string& contents) {
  std::string record(1, static_cast<char>(field << 3 | 2));
  record.push_back(static_cast<char>(contents.size()));
  return record + contents;
}

TEST(SplitTensors, BorrowsTensorBytesAndLeavesTheRest) {
  const std::string message = Request().SerializeAsString();
  const std::vector<absl::Span<const char>> slices = {message};
  SplitMessage split;
  ASSERT_TRUE(SplitTensors(slices, kTensorFields, &split));
  EXPECT_EQ(Text(split.tensors[0]), Request().q().data());
  EXPECT_EQ(Text(split.tensors[1]), "kkkk");
  EXPECT_GE(split.tensors[0].pieces[0].data(), message.data());
  EXPECT_LT(split.tensors[0].pieces[0].data(), message.data() + message.size());
  EXPECT_LT(split.rest.size(), 120u);
}

TEST(SplitTensors, BorrowsTheMessagesOwnDataWhereverTheSlicesEnd) {
  v1::ApplyRopeStreamRequest request;
  *request.mutable_call() = Request();
  request.set_data(std::string(300, 'd'));
  // The last record of a field counts, wherever it is in the message.
  const std::string message =
      Record(15, "first") + request.SerializeAsString() + Record(9, "new");
  for (std::size_t cut = 0; cut <= message.size(); ++cut) {
    const std::vector<absl::Span<const char>> slices = {
        absl::MakeConstSpan(message.data(), cut),
        absl::MakeConstSpan(message.data() + cut, message.size() - cut)};
    SplitMessage split;
    ASSERT_TRUE(SplitTensors(slices, {kOwnData}, &split)) << cut;
    ASSERT_EQ(Text(split.tensors[0]), request.data()) << cut;
    v1::ApplyRopeStreamRequest rest, whole;
    ASSERT_TRUE(rest.ParseFromString(split.rest));
    ASSERT_EQ(rest.data(), "");
    rest.set_data(request.data());
    ASSERT_TRUE(whole.ParseFromString(message));
    ASSERT_EQ(rest.SerializeAsString(), whole.SerializeAsString());
  }
}

TEST(SplitTensors, CopiesNoMoreThanItMay) {
  const std::string message = Request().SerializeAsString();
  const std::vector<absl::Span<const char>> slices = {message};
  SplitMessage split;
  ASSERT_TRUE(SplitTensors(slices, kTensorFields, &split));
  const std::size_t rest = split.rest.size();
  EXPECT_TRUE(SplitTensors(slices, kTensorFields, &split, rest));
  for (std::size_t most = 0; most < rest; ++most) {
    EXPECT_FALSE(SplitTensors(slices, kTensorFields, &split, most)) << most;
    EXPECT_LE(split.rest.size(), rest);
  }
  // A record that is too long is not copied.
  const std::string large =
      "\x12" + std::string("\x80\x08") + std::string(1024, 'p');  // positions
  EXPECT_FALSE(SplitTensors({{large}}, kTensorFields, &split, 1000));
  EXPECT_LE(split.rest.size(), 10u);
}

TEST(SplitTensors, AgreesWithProtobufWhereverTheSlicesEnd) {
  const std::string message = Request().SerializeAsString();
  for (std::size_t slice = 1; slice <= message.size(); ++slice) {
    ASSERT_EQ(fuzz::CheckSplit(message, slice), "") << slice;
  }
}

TEST(SplitTensors, SplitsAMessageCutInTwoAtEveryByte) {
  const std::string message = Request().SerializeAsString();
  for (std::size_t cut = 0; cut <= message.size(); ++cut) {
    const std::vector<absl::Span<const char>> slices = {
        absl::MakeConstSpan(message.data(), cut),
        absl::MakeConstSpan(message.data() + cut, message.size() - cut)};
    SplitMessage split;
    ASSERT_TRUE(SplitTensors(slices, kTensorFields, &split)) << cut;
    ASSERT_EQ(Text(split.tensors[0]), Request().q().data()) << cut;
  }
}

TEST(SplitTensors, TakesTensorBytesBeforeTheirDtype) {
  const std::string message =
      Record(15, Record(15, "data") + std::string("\x08\x01", 2)) +
      std::string("\x18\x01", 2);
  const std::vector<absl::Span<const char>> slices = {message};
  SplitMessage split;
  ASSERT_TRUE(SplitTensors(slices, kTensorFields, &split));
  EXPECT_EQ(Text(split.tensors[1]), "data");
  EXPECT_EQ(fuzz::CheckSplit(message, 0), "");
}

TEST(SplitTensors, MergesTensorsThatComeTwiceAndKeepsTheLastBytes) {
  const std::string message =
      Record(14, std::string("\x08\x01", 2) + Record(15, "first")) +
      Record(14, std::string("\x12\x01\x07", 3) + Record(15, "last"));
  const std::vector<absl::Span<const char>> slices = {message};
  SplitMessage split;
  ASSERT_TRUE(SplitTensors(slices, kTensorFields, &split));
  EXPECT_EQ(Text(split.tensors[0]), "last");
  for (std::size_t slice = 0; slice < message.size(); ++slice) {
    EXPECT_EQ(fuzz::CheckSplit(message, slice), "") << slice;
  }
}

TEST(SplitTensors, LetsTheGeneratedParserKeepUnknownFields) {
  const std::string message = Record(13, "new") +
                              Record(14, Record(9, "newer")) +
                              std::string("\x70\x05", 2);  // q as a varint
  EXPECT_EQ(fuzz::CheckSplit(message, 0), "");
  EXPECT_EQ(fuzz::CheckSplit(message, 1), "");
}

TEST(SplitTensors, RefusesWhatIsTruncated) {
  const std::string message = Request().SerializeAsString();
  for (std::size_t length = 1; length < message.size(); ++length) {
    ASSERT_EQ(fuzz::CheckSplit(message.substr(0, length), 7), "") << length;
  }
}

TEST(SplitTensors, LeavesOddFramingToTheGeneratedParser) {
  const std::string padded_length("\x72\x82\x00\x08\x01", 5);
  const std::string group("\x0b\x0c", 2);
  const std::string overlong_tag("\xf2\x80\x00\x00", 4);
  for (const std::string& message : {padded_length, group, overlong_tag}) {
    const std::vector<absl::Span<const char>> slices = {message};
    SplitMessage split;
    EXPECT_FALSE(SplitTensors(slices, kTensorFields, &split));
    EXPECT_EQ(fuzz::CheckSplit(message, 0), "");
  }
}

// A small version of the fuzz target: seeded mutations of a good message.
TEST(SplitTensors, AgreesWithProtobufOnMutatedMessages) {
  // protobuf logs every string that is not UTF-8.
  compat::SetLog(nullptr);
  const std::string good = Request().SerializeAsString();
  std::mt19937 random(20260101);
  for (int round = 0; round < 50000; ++round) {
    std::string message = good.substr(0, 90 + random() % (good.size() - 90));
    for (int i = random() % 6; i >= 0; --i) {
      const std::size_t at =
          random() % std::min<std::size_t>(message.size(), 60);
      switch (random() % 3) {
        case 0:
          message[at] = static_cast<char>(random());
          break;
        case 1:
          message.erase(at, 1 + random() % 3);
          break;
        default:
          message.insert(at, 1, static_cast<char>(random()));
      }
    }
    ASSERT_EQ(fuzz::CheckSplit(message, random() % 9), "") << round;
  }
}

}  // namespace
}  // namespace posenc::wire
