// Single errors, and several errors in one status.

#include "core/base/error.h"

#include "gmock/gmock.h"

namespace posenc::core {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::Pair;

testing::Matcher<Fault> Is(const char* field, const char* fact) {
  return testing::AllOf(Field(&Fault::field, field), Field(&Fault::fact, fact));
}

absl::Status Two() {
  Faults faults;
  faults.Note(MakeError(absl::StatusCode::kOutOfRange,
                        ErrorReason::kPositionOutOfRange, "ids", "is far",
                        {{"index", "3:1,x"}}));
  faults.Note(FieldRequired("[1]", "not given"));
  return faults.status();
}

TEST(FaultsTest, NoErrorIsNoFault) {
  Faults faults;
  EXPECT_TRUE(faults.Note(absl::OkStatus()));
  EXPECT_TRUE(faults.none());
  EXPECT_TRUE(faults.status().ok());
}

TEST(FaultsTest, OneErrorStaysAsItIs) {
  const absl::Status error = FieldInvalid("a", "is 1; must be 2");
  Faults faults;
  EXPECT_FALSE(faults.Note(error));
  EXPECT_FALSE(faults.none());
  EXPECT_EQ(faults.status(), error);
}

TEST(FaultsTest, TheFirstErrorCarriesTheOthers) {
  const absl::Status status = Two();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(status.message(), "ids: is far");
  const auto details = GetErrorDetails(status);
  ASSERT_TRUE(details.has_value());
  EXPECT_EQ(details->reason, ErrorReason::kPositionOutOfRange);
  EXPECT_EQ(details->field, "ids");
  EXPECT_THAT(details->metadata, ElementsAre(Pair("index", "3:1,x")));
  EXPECT_THAT(details->more, ElementsAre(Is("[1]", "not given")));
}

TEST(FaultsTest, PrefixesAndMetadataReachAllOfThem) {
  const absl::Status status =
      WithMetadata(Prefixed("positions", Two()), "messageIndex", "7");
  EXPECT_EQ(status.message(), "positions.ids: is far");
  const auto details = GetErrorDetails(status);
  ASSERT_TRUE(details.has_value());
  EXPECT_EQ(details->field, "positions.ids");
  EXPECT_THAT(details->metadata,
              ElementsAre(Pair("index", "3:1,x"), Pair("messageIndex", "7")));
  EXPECT_THAT(details->more, ElementsAre(Is("positions[1]", "not given")));
}

TEST(FaultsTest, AFieldIsReportedOnce) {
  Faults faults;
  faults.Note(FieldRequired("ids", "not given"));
  faults.Note(Two());
  faults.Note(FieldInvalid("[1]", "again"));
  const auto details = GetErrorDetails(faults.status());
  ASSERT_TRUE(details.has_value());
  EXPECT_EQ(details->reason, ErrorReason::kFieldRequired);
  EXPECT_THAT(details->more, ElementsAre(Is("[1]", "not given")));
}

TEST(FaultsTest, AnErrorWithoutDetailsStandsAlone) {
  Faults faults;
  faults.Note(absl::InternalError("a bug"));
  faults.Note(FieldRequired("a", "not given"));
  EXPECT_EQ(faults.status(), absl::InternalError("a bug"));
}

TEST(ErrorTest, StatusesWithoutDetailsStayAsTheyAre) {
  for (const absl::Status& status :
       {absl::OkStatus(), absl::InternalError("a bug")}) {
    EXPECT_EQ(Prefixed("a", status), status);
    EXPECT_EQ(WithMetadata(status, "a", "b"), status);
    EXPECT_FALSE(GetErrorDetails(status).has_value());
  }
}

TEST(ErrorTest, AFieldThatIsEmptyBecomesThePrefix) {
  const absl::Status status = Prefixed("rope", FieldRequired("", "no source"));
  EXPECT_EQ(status.message(), "rope: no source");
  EXPECT_EQ(GetErrorDetails(status)->field, "rope");
  EXPECT_THAT(GetErrorDetails(status)->more, IsEmpty());
}

}  // namespace
}  // namespace posenc::core
