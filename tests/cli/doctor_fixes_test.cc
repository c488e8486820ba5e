// The fixes that doctor proposes, done as they are written: of each filed case
// (tests/data/doctor/cases.json) every alternative of the fix takes the finding
// away.

#include <gmock/gmock.h>

#include <algorithm>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/fixtures/doctor_cases.h"

namespace posenc::cli {
namespace {

class DoctorFixesTest : public DoctorCases {};

// Fixes that are to be done elsewhere than in the files and the command line:
// on weights, in another program, or not at all.
constexpr const char* kElsewhere[] = {
    "convert it anew",
    "fix the length that the engine serves",
    "for example",
    "give other loaders the config.json",
    "give transformers 4 the softmax scale",
    "the model was trained so",
    "keep both",
    "leave it: the numbers are the same",
    "make the two agree",
    "mend what",
    "nothing is to be done",
    "another reader",
    "ARCHITECTURE",
    "convert the weights",
    "Reposition cached keys",
    "recompute",
    "remove it from the file",
    "remove the one that the model was not trained with",
    "remove the table",
    "run it with",
    "serve text alone",
    "set the rotated width",
    "spell the scaling with keys that both read",
    "that the model was trained with",
    "the length that",
    "serve at most 4096 tokens",
    "values each"};

bool IsElsewhere(const std::string& text) {
  return std::any_of(
      std::begin(kElsewhere), std::end(kElsewhere),
      [&](const char* words) { return text.find(words) != std::string::npos; });
}

std::vector<std::string> Split(const std::string& text, const char* at) {
  const std::regex separator(at);
  return {std::sregex_token_iterator(text.begin(), text.end(), separator, -1),
          std::sregex_token_iterator()};
}

Json& PartOf(Json* config) {
  return config->contains("text_config") ? (*config)["text_config"] : *config;
}

// The object that a dotted path leads to, from the language part.
Json& At(Json* config, const std::string& path) {
  Json* at = &PartOf(config);
  for (const std::string& step : Split(path, "\\.")) {
    if (step == "text_config") continue;
    at = &(*at)[step];
  }
  return *at;
}

// "key": value, as often as they stand in a text.
std::vector<std::pair<std::string, Json>> PairsIn(const std::string& text) {
  std::vector<std::pair<std::string, Json>> pairs;
  static const std::regex key(R"re("(\w+)": ?)re");
  auto begin = text.cbegin();
  for (std::smatch match; std::regex_search(begin, text.cend(), match, key);) {
    const auto value = match[0].second;
    // The longest text that is JSON.
    Json parsed;
    auto end = value;
    for (auto to = text.cend(); to != value && end == value; --to) {
      parsed = Json::parse(value, to, nullptr, false);
      if (!parsed.is_discarded()) end = to;
    }
    if (end != value) pairs.emplace_back(match[1], parsed);
    begin = end == value ? match[0].second : end;
  }
  return pairs;
}

// In double quotes of the shell.
std::string InQuotes(const std::string& text) {
  return std::regex_replace(text, std::regex("\""), "\\\"");
}

// Writes pairs where the fix says, or where the finding's keys have them.
void WritePairs(const std::string& text, const Json& finding, Json* files) {
  Json& config = (*files)["config.json"];
  // An alternative may leave the place to the one after it.
  const std::regex place(R"((?:in|to) ((?:\w+\.)*rope_\w+)\b)");
  const auto fix = finding["fix"].get<std::string>();
  std::smatch match;
  std::string dict;
  if (std::regex_search(text, match, place) ||
      std::regex_search(fix, match, place)) {
    dict = match[1];
  }
  for (const auto& [key, value] : PairsIn(text)) {
    if (!dict.empty()) {
      At(&config, dict)[key] = value;
      continue;
    }
    bool is_placed = false;
    for (const auto& path : finding["keys"]) {
      const auto at = path.get<std::string>();
      if (at == key || at.ends_with("." + key)) {
        At(&config, at) = value;
        is_placed = true;
      }
    }
    if (!is_placed) PartOf(&config)[key] = value;
  }
}

// Adds flags to --runtime.
void AddFlags(const std::string& flags, Json* files) {
  auto arguments = (*files)["arguments"].get<std::string>();
  const std::size_t runtime = arguments.find("--runtime \"");
  if (runtime == std::string::npos) {
    arguments += " --runtime \"llama-server " + InQuotes(flags) + "\"";
  } else {
    arguments.insert(arguments.rfind('"'), " " + InQuotes(flags));
  }
  (*files)["arguments"] = arguments;
}

// One alternative of a fix; false if it is not understood.
bool Apply(const std::string& text, const Json& finding, Json* files) {
  auto arguments = (*files)["arguments"].get<std::string>();
  Json& config = (*files)["config.json"];
  std::smatch match;
  const auto has = [&](const char* expression) {
    return std::regex_search(text, match, std::regex(expression));
  };
  if (text == "leave it out") {  // the flag that the other alternative gives
    (*files)["arguments"] = "";
    return true;
  }
  if (has(R"re(^leave out (--.*)$)re")) {
    const std::size_t at = arguments.find(match[1].str());
    if (at == std::string::npos) return false;
    arguments.erase(at, match[1].length());
    (*files)["arguments"] = arguments;
    return true;
  }
  if (has(R"re(^add ("rope_theta": \d+) to it$)re")) {
    const std::string pair = match[1];
    const std::string dict = std::regex_replace(
        arguments, std::regex(R"re((rope_\w+\\": \{))re"),
        "$1" + InQuotes(pair) + ", ", std::regex_constants::format_first_only);
    (*files)["arguments"] = dict;
    if (dict == arguments) {
      AddFlags("--hf-overrides.rope_parameters.rope_theta " +
                   pair.substr(pair.rfind(' ') + 1),
               files);
    }
    return true;
  }
  if (has(R"re(^(--hf-overrides '.*'))re")) {
    const std::string flag = match[1];
    const std::size_t at = arguments.find("--rope-");
    if (at == std::string::npos) return false;
    (*files)["arguments"] = arguments.substr(0, at) + InQuotes(flag) + "\"";
    return true;
  }
  if (has(R"re(serve at most (\d+)$)re")) {
    (*files)["arguments"] =
        std::regex_replace(arguments, std::regex("(-c|--max-model-len) \\d+"),
                           "$1 " + match[1].str());
    return true;
  }
  if (has(R"re(^remove (?:it|(--[\w-]+))(?:;|$))re")) {
    const std::string flag =
        match[1].matched ? match[1].str() : "--yarn-attn-factor";
    (*files)["arguments"] =
        std::regex_replace(arguments, std::regex(flag + R"( [^ "]+)"), "");
    return true;
  }
  if (has(R"re((--[a-z-]+ .*?)(?: beside it.*)?$)re")) {
    AddFlags(match[1], files);
    return true;
  }
  if (has(R"re(^write (\w+)\.([\w.]+) = (\w+)$)re")) {
    const Json value = Json::parse(match[3].str(), nullptr, false);
    (*files)["model.gguf"]["keys"][match[2]] =
        value.is_discarded() ? Json(match[3].str()) : value;
    return true;
  }
  if (has(R"re(^set factor in (\w+) to (\d+))re")) {
    At(&config, match[1])["factor"] = std::stod(match[2]);
    return true;
  }
  if (has(R"re(^set model_max_length in \S+ to (\d+))re")) {
    (*files)["tokenizer_config.json"]["model_max_length"] =
        std::stoll(match[1]);
    return true;
  }
  if (has(R"re(^remove "(\w+)" from ([\w.]+))re")) {
    At(&config, match[2]).erase(match[1]);
    return true;
  }
  if (has(R"re((?:^|: )remove ([\w.]+)$)re")) {
    const std::string path = match[1];
    const std::size_t dot = path.rfind('.');
    if (dot == std::string::npos) {
      PartOf(&config).erase(path);
    } else {
      At(&config, path.substr(0, dot)).erase(path.substr(dot + 1));
    }
    return true;
  }
  if (has(R"re(^spell it (\w+))re")) {
    At(&config, "rope_scaling.rope_type") = match[1].str();
    return true;
  }
  if (PairsIn(text).empty()) return false;
  WritePairs(text, finding, files);
  return true;
}

// "remove a or b" is two alternatives, as is "x, or y".
std::vector<std::string> Alternatives(const std::string& fix) {
  std::smatch match;
  if (std::regex_search(fix, match,
                        std::regex(R"re(^(.*remove )(\w+) or (\w+)$)re"))) {
    return {match[1].str() + match[2].str(), match[1].str() + match[3].str()};
  }
  return Split(
      fix,
      "[,;] or |; if |: the trained one is likelier the table's|: [^ ]+ "
      "has it, too|; for llama.cpp ");
}

TEST_F(DoctorFixesTest, EveryAlternativeThatCanBePastedMends) {
  int number = 0, pasted = 0;
  for (const Json& of : Data()["cases"]) {
    if (of.contains("folder")) continue;
    const auto id = of["id"].get<std::string>();
    const std::string folder = "case" + std::to_string(number++);
    const Json files = FilesOf(of, "bad");
    int exit_code = -1;
    const Json bad = Output(WriteFiles(files, folder), &exit_code);
    const Json* const finding = FindId(bad, id);
    ASSERT_NE(finding, nullptr) << of["thread"] << ", " << id;
    const auto fix = (*finding)["fix"].get<std::string>();
    SCOPED_TRACE(of["thread"].get<std::string>() + ", " + id + ": " + fix);
    int alternative = 0;
    for (const std::string& text : Alternatives(fix)) {
      Json mended = files;
      if (text.empty() || IsElsewhere(text)) continue;
      if (!Apply(text, *finding, &mended)) {
        ADD_FAILURE() << "nobody could do this: " << text;
        continue;
      }
      ++pasted;
      const Json good = Output(
          WriteFiles(mended, folder + "_" + std::to_string(alternative++)),
          &exit_code);
      ASSERT_TRUE(good.is_object());
      const Json* const left = FindId(good, id);
      // What llama.cpp needs beside it is an alternative of its own.
      const bool is_others = left != nullptr &&
                             fix.find("; for llama.cpp") != std::string::npos &&
                             (*left)["readers"].size() == 1 &&
                             (*left)["readers"][0]["name"] == "llama.cpp";
      EXPECT_TRUE(left == nullptr || is_others) << text << "\n"
                                                << left->dump(1) << "\n"
                                                << mended.dump();
    }
  }
  EXPECT_GE(pasted, 80);
}

}  // namespace
}  // namespace posenc::cli
