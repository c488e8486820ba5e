// posenc-replay-errors TABLE ENVFILE: makes the calls of
// proto/testdata/client_errors.json through the C++ client library. Its README
// describes the table; ENVFILE names the servers and credentials, one line
// KEY=VALUE each. Its output has the form of posenc-replay's, with the family
// `errors`.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"
#include "posenc/client.h"
#include "tests/conformance/vectors.h"

namespace posenc::conformance {
namespace {

using nlohmann::json;
using Environment = std::map<std::string, std::string>;

Environment ReadEnvironment(const std::string& path) {
  Environment out;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const std::pair<std::string, std::string> pair =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    out[pair.first] = pair.second;
  }
  return out;
}

ClientOptions OptionsOf(const json& test, const Environment& environment) {
  ClientOptions options;
  options.target = environment.at(
      absl::AsciiStrToUpper(test.at("server").get<std::string>()));
  const json asked = test.value("options", json::object());
  if (asked.value("tls", false)) options.tls = TlsOptions();
  if (asked.contains("ca")) {
    options.tls = TlsOptions();
    options.tls->ca_file =
        environment.at(asked.at("ca") == "right" ? "CA" : "WRONG_CA");
  }
  if (asked.contains("token")) {
    options.token = environment.at(
        "TOKEN_" + absl::AsciiStrToUpper(asked.at("token").get<std::string>()));
  }
  if (asked.contains("timeout")) {
    options.timeout = absl::Seconds(asked.at("timeout").get<double>());
  }
  return options;
}

v1::RopeSource RopeOf(const json& rope) {
  if (rope.is_null()) return v1::RopeSource();
  if (rope.is_string()) return FromPreset(rope.get<std::string>());
  json spec = rope;
  if (spec.contains("pairing")) {
    spec["pairing"] = absl::StrCat(
        "PAIRING_",
        absl::AsciiStrToUpper(spec.at("pairing").get<std::string>()));
  }
  v1::RopeSource out;
  const auto status = google::protobuf::util::JsonStringToMessage(
      spec.dump(), out.mutable_spec());
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return out;
}

template <typename Enum, typename Parse>
Enum EnumOf(const Parse& parse, const char* prefix, const json& name) {
  // No release has this number. A client may send any number instead of a name.
  constexpr int kUnknown = 99;
  if (name.is_null()) return static_cast<Enum>(0);
  Enum value;
  const std::string full =
      absl::StrCat(prefix, absl::AsciiStrToUpper(name.get<std::string>()));
  return parse(full, &value) ? value : static_cast<Enum>(kUnknown);
}

std::size_t ElementBytes(v1::Dtype dtype) {
  switch (dtype) {
    case v1::DTYPE_FLOAT8_E4M3FN:
    case v1::DTYPE_FLOAT8_E5M2:
      return 1;
    case v1::DTYPE_FLOAT16:
    case v1::DTYPE_BFLOAT16:
      return 2;
    case v1::DTYPE_FLOAT64:
    case v1::DTYPE_INT64:
      return 8;
    default:
      return 4;
  }
}

// Returns whether the case's caller omits this argument.
bool IsNull(const json& arguments, const char* name) {
  return arguments.contains(name) && arguments.at(name).is_null();
}

v1::Positions PositionsOf(const json& arguments) {
  if (IsNull(arguments, "positions")) return v1::Positions();
  if (!arguments.contains("ids")) {
    return StartAt(arguments.value("start", std::int64_t{0}));
  }
  std::vector<double> ids;
  for (const json& id : arguments.at("ids")) {
    ids.push_back(id.is_string() ? std::numeric_limits<double>::quiet_NaN()
                                 : id.get<double>());
  }
  v1::Positions positions;
  *positions.mutable_ids() =
      ToTensor(ViewOf(ids, {static_cast<std::int64_t>(ids.size())}));
  return positions;
}

absl::Status Rotate(const Client& client, const json& arguments) {
  ApplyRopeArgs args;
  args.rope = RopeOf(arguments.value("rope", json{{"pairing", "half_split"}}));
  args.positions = PositionsOf(arguments);
  args.layout = EnumOf<v1::Layout>(v1::Layout_Parse, "LAYOUT_",
                                   arguments.value("layout", json("bshd")));
  TensorView q;
  q.dtype = EnumOf<v1::Dtype>(v1::Dtype_Parse, "DTYPE_",
                              arguments.value("dtype", json("float32")));
  q.shape = arguments.value("shape", std::vector<std::int64_t>{1, 4, 2, 8});
  const auto bytes_of = [&](const std::vector<std::int64_t>& shape) {
    std::size_t product = ElementBytes(q.dtype);
    for (const std::int64_t extent : shape) {
      product *= static_cast<std::size_t>(extent);
    }
    return product;
  };
  const std::string zeros(arguments.contains("bytes")
                              ? arguments.at("bytes").get<std::size_t>()
                              : bytes_of(q.shape),
                          '\0');
  q.bytes = zeros;
  if (!IsNull(arguments, "q")) args.q = q;
  std::string memory;
  if (arguments.contains("out")) {
    const json& out = arguments.at("out");
    memory.resize(bytes_of(out.value("shape", q.shape)));
    (out.value("of", "q") == "k" ? args.k_out : args.q_out) =
        OutputTo(absl::MakeSpan(memory));
  }
  return client.ApplyRope(args).status();
}

absl::Status Table(const Client& client, const json& arguments) {
  v1::BuildTableRequest request;
  *request.mutable_rope() = RopeOf(arguments.at("rope"));
  *request.mutable_positions() = StartAt(0);
  request.set_rows(arguments.at("rows"));
  return client.BuildTable(request).status();
}

// Makes the call. Returns nullopt for a call that it does not know.
absl::optional<absl::Status> Call(const Client& client, const json& test) {
  const std::string call = test.at("call");
  const json arguments = test.value("arguments", json::object());
  if (call == "info") return client.GetServerInfo().status();
  if (call == "table") return Table(client, arguments);
  if (call == "rotate") return Rotate(client, arguments);
  return absl::nullopt;
}

// Returns what is wrong with the error, or "".
std::string Compare(const absl::Status& status, const json& expected) {
  if (status.ok() && expected.at("code") == "OK") return "";
  const std::string said = absl::StrCat(" (", status.message(), ")");
  const std::string code = CodeName(static_cast<int>(status.code()));
  const std::string codes = expected.at("code");
  const std::vector<std::string> allowed = absl::StrSplit(codes, '|');
  if (std::find(allowed.begin(), allowed.end(), code) == allowed.end()) {
    return absl::StrCat("code is ", code, ", not ", codes, said);
  }
  std::string reason = ErrorReason(status);
  const std::string prefix = "ERROR_REASON_";
  if (reason.rfind(prefix, 0) == 0) reason = reason.substr(prefix.size());
  const std::string field = ErrorFact(status, "field");
  if (reason != expected.value("reason", reason)) {
    return absl::StrCat("reason is '", reason, "'", said);
  }
  if (field != expected.value("field", field)) {
    return absl::StrCat("field is '", field, "'", said);
  }
  for (const std::string text : expected.value("text", json::array())) {
    if (status.message().find(text) == absl::string_view::npos) {
      return absl::StrCat("does not say '", text, "'", said);
    }
  }
  return "";
}

int Main(const std::string& table, const std::string& env_file) {
  const Environment environment = ReadEnvironment(env_file);
  std::ifstream in(table);
  bool failed = false;
  for (const json& test : json::parse(in)) {
    const json only = test.value("only", json::array({"c++"}));
    if (std::find(only.begin(), only.end(), "c++") == only.end()) continue;
    const Client client = Client::Connect(OptionsOf(test, environment));
    const absl::optional<absl::Status> status = Call(client, test);
    const std::string failure =
        status.has_value()
            ? Compare(*status, test.at("expect"))
            : absl::StrCat(test.at("call").dump(), " is no call");
    const std::string name = test.at("name");
    failed = failed || !failure.empty();
    std::printf("errors\t%s\t%s%s\n", name.c_str(),
                failure.empty() ? "ok" : "fail\t", failure.c_str());
  }
  return failed ? 1 : 0;
}

}  // namespace
}  // namespace posenc::conformance

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fprintf(stderr, "usage: posenc-replay-errors TABLE ENVFILE\n");
    return 2;
  }
  return posenc::conformance::Main(argv[1], argv[2]);
} catch (const std::exception& error) {  // a table in another format
  std::fprintf(stderr, "posenc-replay-errors: %s\n", error.what());
  return 2;
}
