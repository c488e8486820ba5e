// Finds and names fields and enum values that this server does not know.

#include "server/convert/unknown_fields.h"

#include <string>

#include "absl/status/status.h"
#include "core/base/error.h"
#include "gtest/gtest.h"
#include "posenc/v1/service.pb.h"

namespace posenc::server {
namespace {

// Returns "field: number", or "" if nothing is unknown.
template <typename Message>
std::string FirstUnknown(const std::string& bytes) {
  Message message;
  EXPECT_TRUE(message.ParseFromString(bytes));
  const KnownFields known(*Message::descriptor());
  const auto seen = known.Walk(bytes);
  EXPECT_TRUE(seen.ok()) << seen.status();
  const absl::Status status =
      seen->known ? absl::OkStatus() : known.Check(message);
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  const auto details = core::GetErrorDetails(status);
  EXPECT_EQ(details->reason, core::ErrorReason::kFieldUnknown);
  return details->field + ": " + details->metadata[0].second;
}

std::string Length(char tag, const std::string& bytes) {
  return {tag + std::string(1, static_cast<char>(bytes.size())) + bytes};
}

// Field 100, a varint.
constexpr char kField100[] = "\xA0\x06\x01";

TEST(KnownFieldsTest, AcceptsFieldsOfEveryKind) {
  v1::ApplyRopeRequest request;
  v1::RopeSpec* const spec = request.mutable_rope()->mutable_spec();
  spec->set_pairing(v1::PAIRING_HALF_SPLIT);
  spec->set_rope_theta(1e6);
  spec->mutable_yarn()->set_factor(4);
  request.set_layout(v1::LAYOUT_THD);
  request.mutable_positions()->mutable_starts()->add_values(-5);
  request.mutable_q()->add_shape(1);
  request.mutable_q()->add_values(0.5);
  request.mutable_q()->set_data("data");
  EXPECT_EQ(FirstUnknown<v1::ApplyRopeRequest>(request.SerializeAsString()),
            "");
  EXPECT_EQ(FirstUnknown<v1::ApplyRopeRequest>(""), "");
}

TEST(KnownFieldsTest, SeesWhetherAMessageNamesSharedMemory) {
  const KnownFields known(*v1::ApplyRopeRequest::descriptor());
  const auto shares = [&known](const v1::ApplyRopeRequest& request) {
    return known.Walk(request.SerializeAsString())->shares;
  };
  v1::ApplyRopeRequest plain, tensor, place, ids;
  plain.mutable_q()->set_data("data");
  tensor.mutable_q()->mutable_shared()->set_name("name");
  place.mutable_q_output();
  ids.mutable_positions()->mutable_ids()->mutable_shared();
  EXPECT_FALSE(shares(v1::ApplyRopeRequest()));
  EXPECT_FALSE(shares(plain));
  EXPECT_TRUE(shares(tensor));
  EXPECT_TRUE(shares(place));
  EXPECT_TRUE(shares(ids));
}

TEST(KnownFieldsTest, AcceptsRepeatedNumbersOneByOne) {
  // q { shape: 2, values: 0.0 }, and both lists are not packed.
  const std::string bytes =
      Length(0x72, std::string("\x10\x02\x19", 3) + std::string(8, '\0'));
  EXPECT_EQ(FirstUnknown<v1::ApplyRopeRequest>(bytes), "");
}

TEST(KnownFieldsTest, NamesAFieldByItsNumberAndPlace) {
  EXPECT_EQ(FirstUnknown<v1::ApplyRopeRequest>(kField100), ": 100");
  EXPECT_EQ(
      FirstUnknown<v1::ApplyRopeRequest>(Length(0x0A, Length(0x0A, kField100))),
      "rope.spec: 100");
}

TEST(KnownFieldsTest, NamesTheElementOfARepeatedMessage) {
  const std::string spans = Length(0x0A, "") + Length(0x0A, kField100);
  EXPECT_EQ(FirstUnknown<v1::BuildPositionsRequest>(Length(0x2A, spans)),
            "multimodal.spans[1]: 100");
}

TEST(KnownFieldsTest, NamesEnumValues) {
  v1::ApplyRopeRequest request;
  for (const int value : {10, 63, 64, 1000, -1}) {
    request.mutable_q()->set_dtype(static_cast<v1::Dtype>(value));
    EXPECT_EQ(FirstUnknown<v1::ApplyRopeRequest>(request.SerializeAsString()),
              "q.dtype: 1")
        << value;
  }
}

TEST(KnownFieldsTest, AnEnumValueThatIsOverriddenDoesNotCount) {
  // q { dtype: 100, dtype: 1 }
  EXPECT_EQ(
      FirstUnknown<v1::ApplyRopeRequest>(Length(0x72, "\x08\x64\x08\x01")), "");
}

TEST(KnownFieldsTest, AKnownNumberOfAnotherWireTypeIsUnknown) {
  // positions and q, both messages, as varints.
  EXPECT_EQ(FirstUnknown<v1::ApplyRopeRequest>("\x70\x01"), ": 14");
}

// Returns the field of the error; empty for OK.
std::string FieldOfTooMany(const std::string& bytes) {
  const absl::Status status =
      KnownFields(*v1::DiagnoseRopeRequest::descriptor()).Walk(bytes).status();
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return core::GetErrorDetails(status)->field;
}

std::string Times(int count, const std::string& bytes) {
  std::string all;
  for (int i = 0; i < count; ++i) all += bytes;
  return all;
}

TEST(KnownFieldsTest, CountsElementsBeforeTheyTakeMemory) {
  constexpr int kMost = KnownFields::kMostElements;
  const std::string input("\x0A\x00", 2), reader("\x12\x00", 2);
  EXPECT_EQ(FieldOfTooMany(Times(kMost, reader)), "");
  EXPECT_EQ(FieldOfTooMany(Times(kMost + 1, reader)), "readers");
  EXPECT_EQ(FieldOfTooMany(Times(kMost, reader) + input), "inputs");
  // An input of many tables; each table counts as one element.
  const std::string tables = Times(100, std::string("\x2A\x00", 2));
  const std::string full = "\x0A\xC8\x01" + tables;
  EXPECT_EQ(FieldOfTooMany(Times(kMost / 101, full)), "");
  EXPECT_EQ(FieldOfTooMany(Times(kMost / 101 + 1, full)), "tables");
  // Unknown fields stay in memory, too.
  EXPECT_EQ(FieldOfTooMany(reader + Times(kMost, kField100)), "readers");
  // Values of a wrong type, and the contents of groups, also stay in memory.
  EXPECT_EQ(FieldOfTooMany(Times(kMost + 1, std::string("\x0D\0\0\0\0", 5))),
            "inputs");
  EXPECT_EQ(FieldOfTooMany(reader + "\xA3\x06" + Times(kMost, kField100) +
                           "\xA4\x06"),
            "readers");
  // The contents of long texts are no elements.
  EXPECT_EQ(FieldOfTooMany("\x1A\x80\x80\x04" + Times(65536, "\x12")), "");
}

// Checks packed lengths of BuildPositions. Returns the field of the error; for
// OK returns "", and sets `grown`.
std::string FieldOfTooManyNumbers(const std::string& lengths,
                                  std::size_t* grown) {
  const auto seen =
      KnownFields(*v1::BuildPositionsRequest::descriptor()).Walk(lengths);
  if (!seen.ok()) return core::GetErrorDetails(seen.status())->field;
  *grown = seen->grown;
  return "";
}

TEST(KnownFieldsTest, CountsTheGrowthOfEncodings) {
  v1::ResolveRopeRequest request;
  request.mutable_rope()
      ->mutable_spec()
      ->mutable_explicit_frequencies()
      ->mutable_values()
      ->Resize(1000, 0.5);
  request.mutable_compare_with()->set_config_json(std::string(300, ' '));
  const auto seen = KnownFields(*v1::ResolveRopeRequest::descriptor())
                        .Walk(request.SerializeAsString());
  ASSERT_TRUE(seen.ok()) << seen.status();
  EXPECT_EQ(seen->grown, kRopeGrowth * (request.rope().ByteSizeLong() +
                                        request.compare_with().ByteSizeLong()) +
                             (kTextGrowth - kRopeGrowth) * 300);
}

std::string Packed(const std::string& numbers) {
  v1::BuildPositionsRequest request;
  // A text has a length before it, as a packed list has.
  v1::RopeSource list;
  list.set_preset(numbers);
  std::string field = list.SerializeAsString();
  field[0] = 0x0A;  // lengths
  list.set_preset(field);
  field = list.SerializeAsString();
  field[0] = 0x0A;  // packed
  return field;
}

TEST(KnownFieldsTest, CountsTheGrowthOfOneByteNumbers) {
  constexpr std::size_t kMost = KnownFields::kMostGrowth / 7;
  std::size_t grown = 0;
  EXPECT_EQ(FieldOfTooManyNumbers(Packed(Times(kMost, "\x01")), &grown), "");
  // The numbers grow twice: in the parsed message, and in core's arguments.
  EXPECT_EQ(grown, 2 * 7 * kMost);
  const std::string many = Packed(Times(kMost + 1, "\x01"));
  EXPECT_EQ(FieldOfTooManyNumbers(many, &grown), "lengths");
  // The parser makes numbers before it detects a truncated list.
  EXPECT_EQ(
      FieldOfTooManyNumbers(many + many.substr(0, many.size() - 1), &grown),
      "lengths");
  const std::string cut = Packed(Times(2 * kMost, "\x01"));
  EXPECT_EQ(FieldOfTooManyNumbers(cut.substr(0, cut.size() - 9), &grown),
            "lengths");
  // One by one: a tag and a byte for each.
  EXPECT_EQ(
      FieldOfTooManyNumbers(
          "\x0A\x82\x80\x80\x08" + Times((8 << 20) + 1, "\x08\x01"), &grown),
      "lengths");
  // Numbers with the same size in memory and on the wire do not grow.
  EXPECT_EQ(
      FieldOfTooManyNumbers(
          Packed(Times(1 << 17, std::string(8, '\xff') + "\x7f")), &grown),
      "");
  EXPECT_EQ(grown, 0u);
}

}  // namespace
}  // namespace posenc::server
