// Refused requests, over a real connection: code, ErrorInfo, BadRequest and
// message, by the tables of tests/data/bad_requests (see their README.md).

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"
#include "tests/fixtures/byte_stream.h"
#include "tests/fixtures/claims.h"
#include "tests/fixtures/server_errors.h"

namespace posenc::server {
namespace {

using nlohmann::json;

constexpr char kTables[] = POSENC_TEST_DATA "/bad_requests";

std::vector<std::string> TableNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kTables)) {
    if (entry.path().extension() == ".json") {
      names.push_back(entry.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

json Zeros(std::size_t bytes) {
  return absl::Base64Escape(std::string(bytes, '\0'));
}

// Returns a tensor of zeros for "float32[2,3]", and other texts unchanged.
json TensorOrText(const std::string& text) {
  const std::size_t bracket = text.find('[');
  if (bracket == std::string::npos || text.back() != ']') return text;
  json tensor = {
      {"dtype",
       absl::StrCat("DTYPE_", absl::AsciiStrToUpper(text.substr(0, bracket)))},
      {"shape", json::array()}};
  v1::Dtype dtype;
  if (!v1::Dtype_Parse(tensor["dtype"].get<std::string>(), &dtype)) return text;
  std::size_t bytes =
      dtype == v1::DTYPE_FLOAT64 || dtype == v1::DTYPE_INT64      ? 8
      : dtype == v1::DTYPE_FLOAT32 || dtype == v1::DTYPE_INT32    ? 4
      : dtype == v1::DTYPE_FLOAT16 || dtype == v1::DTYPE_BFLOAT16 ? 2
                                                                  : 1;
  const std::string extents =
      text.substr(bracket + 1, text.size() - bracket - 2);
  for (const auto part : absl::StrSplit(extents, ',', absl::SkipEmpty())) {
    std::size_t extent = 0;
    EXPECT_TRUE(absl::SimpleAtoi(part, &extent)) << text;
    tensor["shape"].push_back(extent);
    bytes *= extent;
  }
  tensor["data"] = Zeros(bytes);
  return tensor;
}

// Expands the short forms of requests.
json Expanded(const json& value) {
  if (value.is_string()) return TensorOrText(value.get<std::string>());
  if (!value.is_structured()) return value;
  if (value.is_object() && value.size() == 1) {
    const std::string key = value.begin().key();
    const json& inner = value.begin().value();
    if (key == "bytes") return Zeros(inner.get<std::size_t>());
    if (key == "repeat") {
      return json(inner[1].get<std::size_t>(), Expanded(inner[0]));
    }
    if (key == "text" && inner.is_array()) {
      return std::string(inner[1].get<std::size_t>(),
                         inner[0].get<std::string>()[0]);
    }
  }
  json out = value;
  for (json& inner : out) inner = Expanded(inner);
  return out;
}

json RequestOf(const json& table, const json& bad) {
  if (bad.contains("request")) return bad["request"];
  json request = Expanded(table["goods"].at(bad.value("good", "good")));
  const json changes = bad.value("set", json::object());
  for (const auto& [key, value] : changes.items()) {
    request[test::PointerOf(key)] = Expanded(value);
  }
  for (const json& key : bad.value("unset", json::array())) {
    const json::json_pointer at = test::PointerOf(key.get<std::string>());
    EXPECT_EQ(request[at.parent_pointer()].erase(at.back()), 1u) << key;
  }
  return request;
}

grpc::StatusCode CodeOf(const std::string& name) {
  return name == "INVALID_ARGUMENT"     ? kInvalid
         : name == "OUT_OF_RANGE"       ? kOutOfRange
         : name == "RESOURCE_EXHAUSTED" ? kExhausted
         : name == "UNIMPLEMENTED"      ? kUnimplemented
         : name == "NOT_FOUND"          ? grpc::StatusCode::NOT_FOUND
                                        : grpc::StatusCode::OK;
}

class BadRequestsTest : public ServerTest,
                        public testing::WithParamInterface<std::string> {
 protected:
  // Sends a request in JSON.
  using Ask = std::function<grpc::Status(const json&)>;

  template <typename Request, typename Response>
  void Replay(const json& table,
              grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                           Response*)) {
    ExpectTable(table, [this, method](const json& content) {
      Response response;
      return Call(method, Parsed<Request>(content), &response);
    });
  }

  // Reads the answer to its end.
  template <typename Request, typename Response>
  void ReplayStream(const json& table,
                    std::unique_ptr<grpc::ClientReader<Response>> (
                        Stub::*method)(grpc::ClientContext*, const Request&)) {
    ExpectTable(table, [this, method](const json& content) {
      grpc::ClientContext context;
      context.set_deadline(Deadline());
      const auto reader =
          (stub_.get()->*method)(&context, Parsed<Request>(content));
      Response response;
      while (reader->Read(&response)) {
      }
      return reader->Finish();
    });
  }

  // Sends a list of messages.
  template <typename Request, typename Response>
  void ReplayStream(
      const json& table,
      std::unique_ptr<grpc::ClientReaderWriter<Request, Response>> (
          Stub::*method)(grpc::ClientContext*)) {
    ExpectTable(table, [this, method](const json& content) {
      std::vector<Request> messages;
      for (const json& message : content) {
        messages.push_back(Parsed<Request>(message));
      }
      grpc::ClientContext context;
      context.set_deadline(Deadline());
      std::string bytes;
      return Exchange((stub_.get()->*method)(&context).get(), messages, &bytes);
    });
  }

 private:
  template <typename Request>
  static Request Parsed(const json& content) {
    Request request;
    const auto parsed =
        google::protobuf::util::JsonStringToMessage(content.dump(), &request);
    EXPECT_TRUE(parsed.ok()) << parsed.ToString() << content.dump();
    return request;
  }

  void ExpectTable(const json& table, const Ask& ask) {
    ASSERT_FALSE(table["cases"].empty());
    ExpectGoods(table, ask);
    std::set<std::string> names;
    for (const json& bad : table["cases"]) {
      const auto name = bad["name"].get<std::string>();
      SCOPED_TRACE(name);
      EXPECT_TRUE(names.insert(name).second);
      CheckKeys(bad);
      ExpectRefused(bad, ask(RequestOf(table, bad)));
    }
    ExpectGoods(table, ask);
  }

  void ExpectGoods(const json& table, const Ask& ask) {
    for (const auto& [name, good] : table["goods"].items()) {
      const grpc::Status status = ask(Expanded(good));
      EXPECT_TRUE(status.ok()) << name << ": " << status.error_message();
    }
  }

  // An unknown key would be ignored, and the case would check nothing.
  static void CheckKeys(const json& bad) {
    static const auto& known = *new std::set<std::string>{
        "name",     "why",  "good",   "set",        "unset",
        "request",  "code", "reason", "field",      "says",
        "metadata", "has",  "more",   "server_only"};
    for (const auto& [key, value] : bad.items()) {
      EXPECT_EQ(known.count(key), 1u) << key;
    }
  }

  void ExpectRefused(const json& bad, const grpc::Status& status) {
    const std::vector<std::string> none;
    ExpectError(status, {CodeOf(bad.value("code", "INVALID_ARGUMENT")),
                         bad.value("reason", "FIELD_INVALID"), bad["field"],
                         bad.value("says", none), bad.value("more", none)});
    Details details = ReadDetails(status);
    const json metadata = bad.value("metadata", json::object());
    for (const auto& [key, value] : metadata.items()) {
      EXPECT_EQ(details.metadata[key], value.get<std::string>()) << key;
    }
    for (const json& key : bad.value("has", json::array())) {
      EXPECT_EQ(details.metadata.count(key.get<std::string>()), 1u) << key;
    }
  }
};

TEST_P(BadRequestsTest, AreRefusedWithFieldNumbersAndReason) {
  std::ifstream file(absl::StrCat(kTables, "/", GetParam(), ".json"));
  const json table = json::parse(file);
  const std::string rpc = table["rpc"];
  if (rpc == "ResolveRope") return Replay(table, &Stub::ResolveRope);
  if (rpc == "BuildTable") return Replay(table, &Stub::BuildTable);
  if (rpc == "BuildPositions") return Replay(table, &Stub::BuildPositions);
  if (rpc == "ApplyRope") return Replay(table, &Stub::ApplyRope);
  if (rpc == "Reposition") return Replay(table, &Stub::Reposition);
  if (rpc == "AddEncoding") return Replay(table, &Stub::AddEncoding);
  if (rpc == "ScoreRelative") return Replay(table, &Stub::ScoreRelative);
  if (rpc == "ConvertPairing") return Replay(table, &Stub::ConvertPairing);
  if (rpc == "AnalyzeRope") return Replay(table, &Stub::AnalyzeRope);
  if (rpc == "DiagnoseRope") return Replay(table, &Stub::DiagnoseRope);
  if (rpc == "BuildBias") return ReplayStream(table, &Stub::BuildBias);
  if (rpc == "BuildTableStream") {
    return ReplayStream(table, &Stub::BuildTableStream);
  }
  if (rpc == "ApplyRopeStream") {
    return ReplayStream(table, &Stub::ApplyRopeStream);
  }
  if (rpc == "RepositionStream") {
    return ReplayStream(table, &Stub::RepositionStream);
  }
  FAIL() << "unknown rpc " << rpc;
}

INSTANTIATE_TEST_SUITE_P(, BadRequestsTest, testing::ValuesIn(TableNames()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           return info.param;
                         });

}  // namespace
}  // namespace posenc::server
