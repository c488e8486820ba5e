// Compares the released contract with copies that have one change each.

#include "tests/proto/breaking.h"

#include <fstream>
#include <functional>

#include "gmock/gmock.h"

namespace posenc {
namespace {

namespace pb = google::protobuf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

pb::FileDescriptorSet Released() {
  pb::FileDescriptorSet set;
  std::ifstream in(POSENC_CONTRACT, std::ios::binary);
  EXPECT_TRUE(set.ParseFromIstream(&in)) << POSENC_CONTRACT;
  return set;
}

// Returns what breaks if `change` is applied to the file that contains this
// service or message.
std::vector<std::string> BreaksOf(
    const std::string& file,
    const std::function<void(pb::FileDescriptorProto*)>& change) {
  const pb::FileDescriptorSet old = Released();
  pb::FileDescriptorSet now = old;
  for (pb::FileDescriptorProto& each : *now.mutable_file()) {
    if (each.name() == "posenc/v1/" + file) change(&each);
  }
  return Breaks(old, now);
}

pb::DescriptorProto* Message(pb::FileDescriptorProto* file,
                             const std::string& name) {
  for (pb::DescriptorProto& message : *file->mutable_message_type()) {
    if (message.name() == name) return &message;
  }
  ADD_FAILURE() << name;
  return file->add_message_type();
}

pb::FieldDescriptorProto* Field(pb::DescriptorProto* message,
                                const std::string& name) {
  for (pb::FieldDescriptorProto& field : *message->mutable_field()) {
    if (field.name() == name) return &field;
  }
  ADD_FAILURE() << name;
  return message->add_field();
}

// Returns what breaks if `change` is applied to the field called `name` of
// posenc.v1.Tensor.
std::vector<std::string> BreaksOfTensor(
    const std::string& name,
    const std::function<void(pb::FieldDescriptorProto*)>& change) {
  return BreaksOf("tensor.proto", [&](pb::FileDescriptorProto* file) {
    change(Field(Message(file, "Tensor"), name));
  });
}

TEST(BreakingTest, AContractDoesNotBreakItself) {
  EXPECT_THAT(Breaks(Released(), Released()), IsEmpty());
}

TEST(BreakingTest, AdditionsAndOptionsOfLanguagesBreakNobody) {
  EXPECT_THAT(BreaksOf("tensor.proto",
                       [](pb::FileDescriptorProto* file) {
                         file->mutable_options()->set_go_package("elsewhere");
                         file->mutable_options()->set_java_package("elsewhere");
                         file->add_message_type()->set_name("New");
                         pb::FieldDescriptorProto* const field =
                             Message(file, "Tensor")->add_field();
                         field->set_name("scale");
                         field->set_number(16);
                         field->set_type(pb::FieldDescriptorProto::TYPE_DOUBLE);
                         pb::EnumValueDescriptorProto* const value =
                             file->mutable_enum_type(0)->add_value();
                         value->set_name("DTYPE_FLOAT8");
                         value->set_number(7);
                       }),
              IsEmpty());
}

TEST(BreakingTest, OnlyMessagesOfStreamsFromClientsMayChange) {
  const auto change = [](const std::string& message) {
    return BreaksOf("service.proto", [&](pb::FileDescriptorProto* file) {
      Message(file, message)->clear_field();
    });
  };
  EXPECT_THAT(change("ApplyRopeStreamRequest"), IsEmpty());
  EXPECT_THAT(change("ApplyRopeStreamResponse"), IsEmpty());
  EXPECT_THAT(change("ApplyRopeRequest"), Not(IsEmpty()));
  EXPECT_THAT(change("BuildTableStreamRequest"), Not(IsEmpty()));
}

TEST(BreakingTest, AFieldThatIsGoneRenumberedRenamedOrRetypedBreaksClients) {
  EXPECT_THAT(BreaksOf("tensor.proto",
                       [](pb::FileDescriptorProto* file) {
                         Message(file, "Tensor")->mutable_field()->RemoveLast();
                       }),
              ElementsAre("posenc.v1.Tensor.data = 15: is gone"));
  EXPECT_THAT(BreaksOfTensor("data", [](auto* field) { field->set_number(4); }),
              ElementsAre("posenc.v1.Tensor.data = 15: is gone"));
  EXPECT_THAT(
      BreaksOfTensor("data", [](auto* field) { field->set_name("bytes"); }),
      ElementsAre("posenc.v1.Tensor.data: was data, is bytes"));
  EXPECT_THAT(
      BreaksOfTensor("data", [](auto* field) { field->set_json_name("Data"); }),
      ElementsAre("posenc.v1.Tensor.data in JSON: was data, is Data"));
  EXPECT_THAT(
      BreaksOfTensor("data",
                     [](auto* field) {
                       field->set_type(pb::FieldDescriptorProto::TYPE_STRING);
                     }),
      ElementsAre(HasSubstr("TYPE_BYTES, is LABEL_OPTIONAL "
                            "TYPE_STRING")));
  EXPECT_THAT(BreaksOfTensor("dtype",
                             [](auto* field) {
                               field->set_type_name(".posenc.v1.Layout");
                             }),
              ElementsAre(HasSubstr("is LABEL_OPTIONAL TYPE_ENUM "
                                    ".posenc.v1.Layout")));
  EXPECT_THAT(BreaksOfTensor("shape",
                             [](auto* field) {
                               field->set_label(
                                   pb::FieldDescriptorProto::LABEL_OPTIONAL);
                             }),
              ElementsAre(HasSubstr("was LABEL_REPEATED")));
  EXPECT_THAT(BreaksOfTensor("shape",
                             [](auto* field) {
                               field->mutable_options()->set_packed(false);
                             }),
              ElementsAre(HasSubstr("unpacked")));
}

TEST(BreakingTest, AFieldThatLeavesItsOneofBreaksClients) {
  EXPECT_THAT(
      BreaksOf(
          "tensor.proto",
          [](pb::FileDescriptorProto* file) {
            Field(Message(file, "Positions"), "start")->clear_oneof_index();
          }),
      ElementsAre("posenc.v1.Positions.start, its oneof: was \"kind\", is "
                  "\"\""));
}

TEST(BreakingTest, AnEnumValueThatIsGoneOrRenamedBreaksClients) {
  EXPECT_THAT(
      BreaksOf("tensor.proto",
               [](pb::FileDescriptorProto* file) {
                 file->mutable_enum_type(0)->mutable_value()->RemoveLast();
               }),
      ElementsAre("posenc.v1.Dtype.DTYPE_INT64 = 6: is gone"));
  EXPECT_THAT(BreaksOf("tensor.proto",
                       [](pb::FileDescriptorProto* file) {
                         file->mutable_enum_type(0)->mutable_value(6)->set_name(
                             "DTYPE_LONG");
                       }),
              ElementsAre("posenc.v1.Dtype.DTYPE_INT64: was DTYPE_INT64, is "
                          "DTYPE_LONG"));
}

TEST(BreakingTest, ARpcThatIsGoneOrTakesSomethingElseBreaksClients) {
  const std::string name = "posenc.v1.PositionalEncodingService.GetServerInfo";
  const auto change = [](auto what) {
    return BreaksOf("service.proto", [&](pb::FileDescriptorProto* file) {
      what(file->mutable_service(0)->mutable_method());
    });
  };
  EXPECT_THAT(change([](auto* methods) { methods->DeleteSubrange(0, 1); }),
              ElementsAre(name + ": is gone"));
  EXPECT_THAT(change([](auto* methods) {
                methods->Mutable(0)->set_server_streaming(true);
              }),
              ElementsAre(HasSubstr("is .posenc.v1.GetServerInfoRequest -> "
                                    "stream ")));
  EXPECT_THAT(change([](auto* methods) {
                methods->Mutable(0)->set_output_type(".posenc.v1.Tensor");
              }),
              ElementsAre(HasSubstr("-> .posenc.v1.Tensor")));
}

TEST(BreakingTest, AMessageEnumOrServiceThatIsGoneBreaksClients) {
  EXPECT_THAT(
      BreaksOf("errors.proto",
               [](pb::FileDescriptorProto* file) { file->clear_enum_type(); }),
      ElementsAre("posenc.v1.ErrorReason: is gone"));
  EXPECT_THAT(
      BreaksOf("service.proto",
               [](pb::FileDescriptorProto* file) { file->clear_service(); }),
      ElementsAre("posenc.v1.PositionalEncodingService: is gone"));
  EXPECT_THAT(BreaksOf("tensor.proto",
                       [](pb::FileDescriptorProto* file) {
                         Message(file, "PackedSequences")->set_name("Packed");
                       }),
              ElementsAre("posenc.v1.PackedSequences: is gone"));
}

}  // namespace
}  // namespace posenc
