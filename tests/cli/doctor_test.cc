// `posenc doctor` on files: a pair for every check, exit codes and JSON. Its
// bad files: tests/data/cli/doctor.json.

#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <numbers>
#include <sstream>

#include "core/model/doctor/finding.h"
#include "server/server.h"
#include "tests/fixtures/cli.h"
#include "tests/fixtures/model_files.h"

namespace posenc::cli {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

const fs::path kPairs = fs::path(POSENC_TEST_DATA) / "doctor";

class DoctorTest : public PosencTest {
 protected:
  void Write(const std::string& name, const Json& json) {
    WriteText(name, json.dump());
  }
  Outcome Doctor(const std::string& arguments) {
    return Posenc("doctor " + arguments);
  }
};

Json Plain() {
  return {{"model_type", "llama"},    {"hidden_size", 512},
          {"num_attention_heads", 8}, {"head_dim", 64},
          {"rope_theta", 500000.0},   {"max_position_embeddings", 131072}};
}

Json Conflict() {
  Json config = Plain();
  config["rope_scaling"] = {{"rope_type", "yarn"},
                            {"type", "linear"},
                            {"factor", 4.0},
                            {"original_max_position_embeddings", 32768}};
  return config;
}

// Returns only the JSON: lines from stderr follow it.
Json Output(const std::string& arguments) {
  const std::string text = Posenc("--json doctor " + arguments).text;
  const std::size_t end = text.rfind("\n}\n");
  return Json::parse(text.substr(0, end == std::string::npos ? end : end + 2),
                     nullptr, false);
}

// Returns the lines on stderr.
std::string Complaints(const std::string& text) {
  std::istringstream lines(text);
  std::string complaints, line;
  while (std::getline(lines, line)) {
    if (line.rfind("posenc: ", 0) == 0) complaints += line + "\n";
  }
  return complaints;
}

// Returns the words of a pair's `command`, quoted for the shell.
std::string CommandOf(const fs::path& folder) {
  std::ifstream file(folder / "command");
  std::string words, line;
  while (std::getline(file, line)) {
    std::string quoted = "'";
    for (const char c : line) {
      quoted += c == '\'' ? "'\\''" : std::string(1, c);
    }
    words += " " + quoted + "'";
  }
  return words;
}

const Json* FindId(const Json& output, const std::string& id) {
  for (const Json& finding : output["findings"]) {
    if (finding["id"] == id) return &finding;
  }
  return nullptr;
}

TEST_F(DoctorTest, EveryPairShowsItsCheckInTheBadFolderAlone) {
  for (const core::CheckRow& row : core::CheckRows()) {
    // certificate_test covers the checks of a cache.
    if (row.id.rfind("cache.", 0) == 0) continue;
    EXPECT_TRUE(fs::is_directory(kPairs / std::string(row.id) / "bad"))
        << row.id;
  }
  for (const auto& entry : fs::directory_iterator(kPairs)) {
    if (!entry.is_directory()) continue;
    const std::string id = entry.path().filename().string();
    const core::CheckRow* const row = core::FindCheck(id);
    ASSERT_NE(row, nullptr) << id;
    for (const bool bad : {true, false}) {
      const fs::path folder = entry.path() / (bad ? "bad" : "good");
      const Json output = Output(Quoted(folder.string()) + CommandOf(folder));
      ASSERT_TRUE(output.is_object()) << id;
      for (const Json& input : output["inputs"]) {
        EXPECT_TRUE(input["unreadable"].is_null()) << id << input;
      }
      const Json* const finding = FindId(output, id);
      ASSERT_EQ(finding != nullptr, bad) << id << output.dump(1);
      if (!bad) continue;
      if (!row->by_size) {
        EXPECT_EQ((*finding)["severity"].get<std::string>(),
                  core::SeverityName(row->severity))
            << id;
      }
      EXPECT_LE((*finding)["message"].get<std::string>().size(), 400) << id;
      EXPECT_FALSE((*finding)["fix"].get<std::string>().empty()) << id;
    }
  }
}

TEST_F(DoctorTest, ExitCodesFollowFailOn) {
  Write("config.json", Conflict());
  EXPECT_EQ(Doctor(Path("")).exit_code, 1);
  EXPECT_EQ(Doctor(Path("") + " --fail-on none").exit_code, 0);
  Write("config.json", Plain());
  EXPECT_EQ(Doctor(Path("")).exit_code, 0);
  EXPECT_EQ(Doctor(Path("") + " --fail-on note").exit_code, 0);
  Write("tokenizer_config.json", {{"model_max_length", 2048}});
  EXPECT_EQ(Doctor(Path("") + " --fail-on warning").exit_code, 0);
  EXPECT_EQ(Doctor(Path("") + " --fail-on note").exit_code, 1);
}

TEST_F(DoctorTest, ChecksAreListedWithIdSeverityAndFix) {
  const Outcome outcome = Posenc("--json doctor --checks");
  EXPECT_EQ(outcome.exit_code, 0);
  const Json checks = Json::parse(outcome.text, nullptr, false)["checks"];
  ASSERT_EQ(checks.size(), core::CheckRows().size());
  for (const Json& check : checks) {
    const core::CheckRow* const row =
        core::FindCheck(check["id"].get<std::string>());
    ASSERT_NE(row, nullptr) << check;
    EXPECT_EQ(check["severity"].get<std::string>(),
              row->by_size ? "by size" : core::SeverityName(row->severity));
    EXPECT_EQ(check["finds"].get<std::string>(), row->finds);
    EXPECT_EQ(check["fix"].get<std::string>().find('$'), std::string::npos);
  }
  EXPECT_THAT(Doctor("--checks").text, HasSubstr("config.type-conflict"));
}

// Gemma 3's file has 1.2 MB.
TEST_F(DoctorTest, OfALargeTokenizersConfigurationTheLengthIsRead) {
  Write("config.json", Plain());
  const std::string tokens = "\"added_tokens\": \"" +
                             std::string(2 << 20, 'x') +
                             "\", \"extra\": {\"model_max_length\": 7}";
  WriteText("tokenizer_config.json",
            "{" + tokens + ", \"model_max_length\": 8192}");
  const Json told = Output(Path(""));
  ASSERT_EQ(told["findings"].size(), 1) << told.dump(1);
  EXPECT_EQ(told["findings"][0]["id"], "config.tokenizer-length");
  EXPECT_THAT(told["findings"][0]["message"].get<std::string>(),
              HasSubstr("model_max_length is 8192"));
  WriteText("tokenizer_config.json", "{" + tokens);
  EXPECT_THAT(Output(Path(""))["inputs"][1]["unreadable"].get<std::string>(),
              HasSubstr("not JSON"));
}

TEST_F(DoctorTest, JsonHasEveryField) {
  Write("config.json", Conflict());
  const Json output = Output(Path("config.json"));
  EXPECT_EQ(output["length"], 131072);
  EXPECT_EQ(output["summary"],
            (Json{{"error", 1}, {"warning", 1}, {"note", 0}}));
  // vLLM refuses configurations whose types differ.
  ASSERT_NE(FindId(output, "readers.refuses"), nullptr);
  const Json& input = output["inputs"][0];
  EXPECT_EQ(input["path"], Path("config.json"));
  EXPECT_EQ(input["kind"], "config");
  EXPECT_EQ(input["model_type"], "llama");
  EXPECT_EQ(input["content_hash"].get<std::string>().size(), 64);
  const Json& finding = output["findings"][0];
  EXPECT_EQ(finding["layers"], "all");
  EXPECT_EQ(finding["fix"], "remove \"type\" from rope_scaling");
  EXPECT_EQ(finding["keys"],
            (Json{"rope_scaling.type", "rope_scaling.rope_type"}));
  const Json& reader = finding["readers"][0];
  EXPECT_EQ(reader["name"], "mlx-lm");
  for (const char* key : {"says", "first_distance", "kept_at_length",
                          "first_angle", "amplitude_ratio", "worst_pair"}) {
    EXPECT_TRUE(reader.contains(key)) << key;
  }
  EXPECT_EQ(reader["first_distance"], 3);
  EXPECT_NEAR(reader["amplitude_ratio"].get<double>(), 0.8782, 1e-4);
}

TEST_F(DoctorTest, FolderWithAllFiveKindsAtOnceReadsAll) {
  fs::copy(kPairs / "params.config-differs" / "bad", Path("all"));
  fs::copy(kPairs / "config.tokenizer-length" / "bad" / "tokenizer_config.json",
           Path("all"));
  fs::copy(kPairs / "gguf.freq-base" / "bad" / "model.gguf", Path("all"));
  fs::copy(kPairs / "tables.inv-freq-differs" / "bad" / "model.safetensors",
           Path("all"));
  fs::create_directory(Path("all/deeper"));
  WriteText("all/deeper/config.json", "not JSON");
  const Json output = Output(Path("all"));
  ASSERT_EQ(output["inputs"].size(), 5);
  for (const Json& input : output["inputs"]) {
    EXPECT_TRUE(input["unreadable"].is_null()) << input;
  }
  for (const char* id : {"params.config-differs", "config.tokenizer-length",
                         "gguf.freq-base", "tables.inv-freq-differs"}) {
    EXPECT_NE(FindId(output, id), nullptr) << id;
  }
}

TEST_F(DoctorTest, WhatMayNotBeReadIsNamed) {
  // Root may read everything, unless it drops two capabilities.
  const std::string program =
      geteuid() == 0 ? "/usr/bin/setpriv" : "/usr/bin/env";
  const std::string before =
      geteuid() == 0 ? "--bounding-set=-dac_override,-dac_read_search " : "";
  fs::create_directories(Path("closed"));
  fs::create_directories(Path("open"));
  Write("closed/config.json", Plain());
  Write("open/config.json", Plain());
  fs::permissions(Path("closed"), fs::perms::none);
  fs::permissions(Path("open/config.json"), fs::perms::none);
  for (const char* path : {"closed", "closed/config.json", "open"}) {
    const Outcome outcome = RunCommand(
        program, before + POSENC_PATH + " doctor " + Quoted(Path(path)));
    EXPECT_EQ(outcome.exit_code, 3) << path << "\n" << outcome.text;
    EXPECT_THAT(Complaints(outcome.text),
                HasSubstr("cannot open: Permission denied"))
        << path;
  }
  fs::permissions(Path("closed"), fs::perms::owner_all);
}

TEST_F(DoctorTest, AnIndexTellsWhichShardsHoldTables) {
  fs::create_directory(Path("m"));
  Json config = Plain();
  config["head_dim"] = 16;
  config["rope_theta"] = 10000.0;
  Write("m/config.json", config);
  fs::copy(kPairs / "tables.inv-freq-differs" / "bad" / "model.safetensors",
           Path("m/one.safetensors"));
  WriteText("m/two.safetensors", "not read");
  Write("m/model.safetensors.index.json",
        {{"weight_map",
          {{"model.layers.0.self_attn.rotary_emb.inv_freq", "one.safetensors"},
           {"lm_head.weight", "two.safetensors"}}}});
  const Json output = Output(Path("m"));
  ASSERT_EQ(output["inputs"].size(), 2);
  EXPECT_NE(FindId(output, "tables.inv-freq-differs"), nullptr);
  for (const Json& input : output["inputs"]) {
    EXPECT_TRUE(input["unreadable"].is_null()) << input;
  }
}

TEST_F(DoctorTest, AServerElsewhereSaysTheSame) {
  server::ServerOptions options;
  options.listen = {"unix:" + Path("server")};
  const auto server = server::Server::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string to = " --server " + Quoted(options.listen[0]);
  for (const auto& entry : fs::directory_iterator(kPairs)) {
    if (!entry.is_directory()) continue;
    const fs::path folder = entry.path() / "bad";
    for (const std::string json : {"", " --json"}) {
      const std::string arguments = Quoted(folder.string()) + CommandOf(folder);
      const Outcome here = Doctor(arguments + json);
      const Outcome there = Doctor(arguments + json + to);
      EXPECT_EQ(here.exit_code, there.exit_code) << folder;
      EXPECT_EQ(here.text, there.text) << folder;
    }
  }
  const Outcome away = Doctor(Quoted((kPairs / "gguf.swa" / "bad").string()) +
                              " --server unix:" + Path("nobody"));
  EXPECT_EQ(away.exit_code, 1);
  EXPECT_THAT(away.text, HasSubstr("UNAVAILABLE"));
}

// llama.cpp's frequencies of a head of 64 channels, scaled linearly by 4.
std::string LinearGguf() {
  return GgufBytes({{"architecture", "llama"},
                    {"keys",
                     {{"context_length", 8192},
                      {"embedding_length", 512},
                      {"attention.head_count", 8},
                      {"rope.freq_base", 10000.0},
                      {"rope.scaling.type", "linear"},
                      {"rope.scaling.factor", 4.0}}}});
}

TEST_F(DoctorTest, AGgufIsAnEncodingForEveryCommand) {
  WriteText("m.gguf", LinearGguf());
  const Json resolved =
      Posenc("--json resolve --config " + Path("m.gguf")).json();
  const Json& values = resolved["spec"]["explicit_frequencies"]["values"];
  ASSERT_EQ(values.size(), 32) << resolved;
  for (int i = 0; i < 32; ++i) {
    EXPECT_NEAR(values[i].get<double>() * 4 * std::pow(10000.0, i / 32.0), 1,
                1e-12);
  }
  EXPECT_EQ(resolved["spec"]["pairing"], "PAIRING_INTERLEAVED");
  const Json plot =
      Posenc("--json plot wavelengths --config " + Path("m.gguf")).json();
  EXPECT_NEAR(plot["curves"][0]["y"][0].get<double>(), 8 * std::numbers::pi,
              1e-9)
      << plot;
}

TEST_F(DoctorTest, FlagsThatAGgufDoesNotHaveAreNamed) {
  WriteText("m.gguf", LinearGguf());
  const auto text = [&](const std::string& flags) {
    const Outcome outcome =
        Posenc("resolve --config " + Path("m.gguf") + " " + flags);
    EXPECT_EQ(outcome.exit_code, 2) << flags;
    return outcome.text;
  };
  EXPECT_THAT(text("--profile vllm"), HasSubstr("--profile: a GGUF is read"));
  EXPECT_THAT(text("--layer-index 3"), HasSubstr("--layer-index: a GGUF"));
  EXPECT_THAT(text("--layer-type chunked"),
              HasSubstr("--layer-type: 'chunked"));
  WriteText("cut.gguf", LinearGguf().substr(0, 100));
  const Outcome cut = Posenc("resolve --config " + Path("cut.gguf"));
  EXPECT_EQ(cut.exit_code, 3);
  EXPECT_THAT(cut.text, HasSubstr("cut.gguf: 7 keys in 76 bytes"));
  WriteText("none.gguf",
            GgufBytes({{"architecture", "gpt2"}, {"keys", Json::object()}}));
  EXPECT_THAT(Posenc("resolve --config " + Path("none.gguf")).text,
              HasSubstr("architecture gpt2 does not rotate"));
}

TEST_F(DoctorTest, APresetIsTheReferenceOfWhatLiesBesideIt) {
  const Json alone = Output("--preset gpt-oss-20b");
  EXPECT_EQ(alone["inputs"][0]["path"], "gpt-oss-20b");
  EXPECT_NE(FindId(alone, "readers.frequencies"), nullptr);
  WriteText("m.gguf", LinearGguf());
  const Json both = Output("--preset llama-3.1-8b " + Path("m.gguf"));
  ASSERT_EQ(both["inputs"].size(), 2);
  EXPECT_NE(FindId(both, "gguf.freq-base"), nullptr);
  const Outcome unknown = Doctor("--preset nobody");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.text, HasSubstr("--preset: 'nobody' is no preset"));
}

}  // namespace
}  // namespace posenc::cli
