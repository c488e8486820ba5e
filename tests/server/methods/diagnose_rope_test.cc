// DiagnoseRope over a real connection: its answers to descriptions and to
// invalid messages.

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/interpretation/formats/gguf_file.h"
#include "tests/fixtures/server_errors.h"

namespace posenc::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class DiagnoseRopeTest : public ServerTest {
 protected:
  v1::DiagnoseRopeResponse Diagnosed(const v1::DiagnoseRopeRequest& request) {
    v1::DiagnoseRopeResponse response;
    const grpc::Status status = Call(&Stub::DiagnoseRope, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
};

constexpr char kPlain[] =
    R"({"model_type":"llama","hidden_size":512,"num_attention_heads":8,)"
    R"("head_dim":64,"rope_theta":500000.0,"max_position_embeddings":131072})";
constexpr char kConflict[] =
    R"({"model_type":"llama","hidden_size":512,"num_attention_heads":8,)"
    R"("head_dim":64,"rope_theta":500000.0,"max_position_embeddings":131072,)"
    R"("rope_scaling":{"rope_type":"yarn","type":"linear","factor":4.0,)"
    R"("original_max_position_embeddings":32768}})";

v1::ModelDescription Config(const std::string& text) {
  v1::ModelDescription input;
  input.set_kind(v1::DESCRIPTION_KIND_CONFIG);
  input.set_text(text);
  return input;
}

v1::DiagnoseRopeRequest Request(
    const std::vector<v1::ModelDescription>& inputs) {
  v1::DiagnoseRopeRequest request;
  request.mutable_inputs()->Add(inputs.begin(), inputs.end());
  return request;
}

std::string GgufKeys(double base) {
  core::interpretation::GgufFile file;
  file.keys["general.architecture"] = std::string("llama");
  file.keys["llama.context_length"] = std::uint64_t{131072};
  file.keys["llama.attention.key_length"] = std::uint64_t{64};
  file.keys["llama.rope.dimension_count"] = std::uint64_t{64};
  file.keys["llama.rope.freq_base"] = base;
  return core::interpretation::WriteGgufKeys(file);
}

v1::ModelDescription Gguf(const std::string& bytes) {
  v1::ModelDescription input;
  input.set_kind(v1::DESCRIPTION_KIND_GGUF);
  input.set_gguf(bytes);
  return input;
}

const v1::Finding* Find(const v1::DiagnoseRopeResponse& response,
                        const std::string& id) {
  for (const v1::Finding& finding : response.findings()) {
    if (finding.id() == id) return &finding;
  }
  return nullptr;
}

TEST_F(DiagnoseRopeTest, AConfigurationIsReadAsEachReaderReadsIt) {
  const v1::DiagnoseRopeResponse response =
      Diagnosed(Request({Config(kConflict)}));
  ASSERT_EQ(response.inputs_size(), 1);
  EXPECT_EQ(response.inputs(0).content_hash().size(), 64);
  EXPECT_THAT(response.inputs(0).spec(), HasSubstr("yarn by 4"));
  EXPECT_EQ(response.inputs(0).unreadable(), "");
  const v1::Finding* const finding = Find(response, "config.type-conflict");
  ASSERT_NE(finding, nullptr);
  EXPECT_THAT(finding->fix(), HasSubstr("type"));
  ASSERT_EQ(finding->readers_size(), 1);
  EXPECT_LE(finding->readers(0).least_kept(),
            finding->readers(0).kept_at_length());
}

TEST_F(DiagnoseRopeTest, AGgufFileIsReadFromItsFirstBytes) {
  v1::DiagnoseRopeRequest request =
      Request({Config(kPlain), Gguf(GgufKeys(500000))});
  EXPECT_EQ(Find(Diagnosed(request), "gguf.freq-base"), nullptr);
  request = Request({Config(kPlain), Gguf(GgufKeys(10000))});
  const v1::DiagnoseRopeResponse response = Diagnosed(request);
  EXPECT_NE(Find(response, "gguf.freq-base"), nullptr);
  EXPECT_EQ(response.inputs(1).path(), "model.gguf");
  EXPECT_EQ(response.inputs(1).model_type(), "llama");
}

TEST_F(DiagnoseRopeTest, FactorsPastTheEndOfAGgufFileComeAsTables) {
  // rope_freqs.weight, without its 32 floats.
  std::string bytes = GgufKeys(500000);
  bytes[8] = 1;
  const auto append = [&bytes](auto value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  const std::string name = "rope_freqs.weight";
  append(std::uint64_t{name.size()});
  bytes += name;
  append(std::uint32_t{1});
  append(std::uint64_t{32});
  append(std::uint32_t{0});
  append(std::uint64_t{0});
  v1::DiagnoseRopeRequest request = Request({Config(kPlain), Gguf(bytes)});
  v1::DiagnoseRopeResponse response = Diagnosed(request);
  EXPECT_EQ(response.inputs(1).unreadable(), "");
  EXPECT_EQ(Find(response, "gguf.factor-tensors"), nullptr);
  v1::NamedTensor* const factors = request.mutable_inputs(1)->add_tables();
  factors->set_name(name);
  SetTensor<float>(v1::DTYPE_FLOAT32, {32}, std::vector<float>(32, 2),
                   factors->mutable_tensor());
  EXPECT_NE(Find(Diagnosed(request), "gguf.factor-tensors"), nullptr);
  factors->mutable_tensor()->clear_data();
  factors->mutable_tensor()->set_shape(0, 1);
  factors->mutable_tensor()->add_values(-1);
  response = Diagnosed(request);
  EXPECT_THAT(response.inputs(1).unreadable(),
              HasSubstr("rope_freqs.weight has a value -1"));
}

TEST_F(DiagnoseRopeTest, FaultsOfADescriptionArePartOfTheAnswer) {
  v1::ModelDescription missing;
  missing.set_kind(v1::DESCRIPTION_KIND_GGUF);
  missing.set_path("q4.gguf");
  missing.set_unreadable("cannot open: no such file");
  missing.set_text("all else is left out");
  const v1::DiagnoseRopeResponse response = Diagnosed(
      Request({Config(kConflict), Config("{\n \"a\" 1}"), Config(""), missing,
               Gguf(""), Gguf(GgufKeys(10000).substr(0, 100)),
               Config(absl::StrCat(std::string(1 << 20, ' '), "{}"))}));
  std::vector<std::string> why;
  for (const auto& input : response.inputs()) why.push_back(input.unreadable());
  EXPECT_THAT(why,
              ElementsAre("", HasSubstr("not JSON: line 2, column"),
                          HasSubstr("not JSON"), "cannot open: no such file",
                          HasSubstr("ends at byte 0"),
                          HasSubstr("ends at byte 100"), HasSubstr("1048578")));
  EXPECT_EQ(response.inputs(3).path(), "q4.gguf");
  EXPECT_NE(Find(response, "config.type-conflict"), nullptr);
}

TEST_F(DiagnoseRopeTest, TwoConfigurationsOfOneNameAreToldApart) {
  const v1::DiagnoseRopeResponse response =
      Diagnosed(Request({Config(kPlain), Config(kConflict)}));
  EXPECT_NE(response.inputs(0).content_hash(),
            response.inputs(1).content_hash());
}

TEST_F(DiagnoseRopeTest, NamesThatAreNoUtf8BecomeReplacementCharacters) {
  core::interpretation::GgufFile file;
  file.keys["general.architecture"] = std::string("\xff\xfe");
  const v1::DiagnoseRopeResponse response =
      Diagnosed(Request({Gguf(core::interpretation::WriteGgufKeys(file))}));
  EXPECT_EQ(response.inputs(0).model_type(), "\xEF\xBF\xBD\xEF\xBF\xBD");
}

// The diagnosis tries 4096 distances of 4096 pairs for each of ten readers and
// 64 files, which takes seconds.
TEST_F(DiagnoseRopeTest, ALongDiagnosisEndsWithItsDeadline) {
  v1::DiagnoseRopeRequest request;
  for (int i = 0; i < 64; ++i) {
    *request.add_inputs() = Config(
        R"({"model_type":"glm","hidden_size":8192,"num_attention_heads":1,)"
        R"("head_dim":8192,"max_position_embeddings":1000000,"rope_theta":)" +
        std::to_string(10000 + i) + "}");
  }
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::milliseconds(50));
  v1::DiagnoseRopeResponse response;
  const grpc::Status status = stub_->DiagnoseRope(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
}

}  // namespace
}  // namespace posenc::server
