// Applies the fixes that doctor proposes, as written: in each filed case
// (tests/data/doctor/cases.json) every alternative of the fix removes the
// finding.

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/doctor/doctor.h"
#include "core/doctor/readers.h"
#include "core/interpretation/content_hash.h"
#include "core/interpretation/presets.h"
#include "tests/fixtures/doctor_cases.h"

namespace posenc::cli {
namespace {

class DoctorFixesTest : public DoctorCases {
 protected:
  // Returns base, width and axes, as transformers reads them, of layers 0 and
  // 5. Layer 5 has full attention in models with a pattern of six layers.
  std::vector<Json> Ropes(const Json& config) {
    WriteText("rope.json", config.dump());
    std::vector<Json> ropes;
    for (const char* layer : {"0", "5"}) {
      const Outcome outcome =
          Posenc("--json resolve --config " + Quoted(Path("rope.json")) +
                 " --layer-index " + layer);
      const Json spec =
          Json::parse(outcome.text, nullptr, false).value("spec", Json());
      Json& rope = ropes.emplace_back(Json::object());
      for (const char* key : {"rope_theta", "rotary_dim", "axes"}) {
        rope[key] = spec.is_object() ? spec.value(key, Json()) : Json();
      }
    }
    return ropes;
  }
};

// Alternatives that change neither the files nor the command line, but weights,
// another program, or nothing.
constexpr const char* kElsewhere[] = {
    "--override-kv ARCHITECTURE.*", "Reposition cached keys .*",
    "(use )?another reader",
    "convert it again(| with a current convert_hf_to_gguf.py|: \\S+ = "
    "\\[.*\\])",
    "convert the weights .*",
    // The user must choose the factor.
    "set one base for the length that you serve: for example \"rope_type\": "
    "\"yarn\" with a factor",
    "fix the length that the engine serves",
    "give other loaders the config.json",
    "give short_factor and long_factor \\d+ values each",
    "give transformers 4 the softmax scale of the reference: .*",
    "keep both: they say the same",
    "keep one of the two: remove the one that the model was not trained with",
    "leave it: the numbers are the same without it",
    "make the two agree: the weights were trained with one of them",
    "mend what .* names", "nothing is to be done in the file: .*",
    "recompute (it in float32|the table from the configuration)",
    "remove it from the file",
    "remove the table (and keep the configuration|from the file)",
    "run it with llama.cpp",
    "run it with the reference's reader where these distances matter",
    "serve at most \\d+ tokens", "serve text alone with .*",
    "set the rotated width in \\S+",
    // Only the people who trained the model know the numbers.
    "spell it yarn, with the attention_factor that the model was trained with",
    "spell the scaling with keys that both read",
    "the length that the model was trained with",
    "the model was trained so, add the scaling to \\S+"};

bool IsElsewhere(const std::string& text) {
  return std::any_of(std::begin(kElsewhere), std::end(kElsewhere),
                     [&](const char* alternative) {
                       return std::regex_match(text, std::regex(alternative));
                     });
}

std::vector<std::string> Split(const std::string& text, const char* at) {
  const std::regex separator(at);
  return {std::sregex_token_iterator(text.begin(), text.end(), separator, -1),
          std::sregex_token_iterator()};
}

Json& PartOf(Json* config) {
  return config->contains("text_config") ? (*config)["text_config"] : *config;
}

// Returns the object at a dotted path in the language part.
Json& At(Json* config, const std::string& path) {
  Json* at = &PartOf(config);
  for (const std::string& step : Split(path, "\\.")) {
    if (step == "text_config") continue;
    at = &(*at)[step];
  }
  return *at;
}

// Returns all pairs "key": value of a text.
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

// Escapes text for the shell's double quotes.
std::string InQuotes(const std::string& text) {
  return std::regex_replace(text, std::regex("\""), "\\\"");
}

// Writes pairs to the place that the fix's text names, or to the finding's
// keys.
void WritePairs(const std::string& text, const Json& finding, Json* files) {
  Json& config = (*files)["config.json"];
  // An alternative may omit the place if the next alternative names a place.
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

// Applies one alternative of a fix. Returns false if the alternative cannot be
// parsed.
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
    const std::size_t at =
        std::min(arguments.find("--rope-"), arguments.find("--hf-overrides"));
    if (at == std::string::npos) return false;
    (*files)["arguments"] = arguments.substr(0, at) + InQuotes(flag) + "\"";
    return true;
  }
  if (has(R"re(^nest it in (\w+)$)re")) {
    (*files)["arguments"] = std::regex_replace(
        arguments, std::regex(R"('(\{.*\})')"),
        "'{" + InQuotes("\"" + match[1].str() + "\": ") + "$1}'");
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
  if (has(R"re(^set factor in ([\w.]+) to (\d+))re")) {
    At(&config, match[1])["factor"] = std::stod(match[2]);
    return true;
  }
  if (has(R"re(^set model_max_length in \S+ to (\d+))re")) {
    (*files)["tokenizer_config.json"]["model_max_length"] =
        std::stoll(match[1]);
    return true;
  }
  if (has(R"re(^in ([\w.]+) set (\w+) to default and remove factor$)re")) {
    At(&config, match[1])[match[2]] = "default";
    At(&config, match[1]).erase("factor");
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

// "remove a or b" has two alternatives, and so has "x, or y".
std::vector<std::string> Alternatives(const std::string& fix) {
  std::smatch match;
  if (std::regex_search(fix, match,
                        std::regex(R"re(^(.*remove )(\w+) or (\w+)$)re"))) {
    return {match[1].str() + match[2].str(), match[1].str() + match[3].str()};
  }
  return Split(fix,
               "[,;] or |; if |, because the model was more likely trained "
               "with the table|: [^ ]+ "
               "has it, too|; for llama.cpp ");
}

// Returns the errors and warnings that only the corrected checkpoint has.
std::set<std::string> NewIds(const Json& bad, const Json& good) {
  std::set<std::string> before, added;
  for (const Json& finding : bad["findings"]) {
    before.insert(finding["id"].get<std::string>());
  }
  for (const Json& finding : good["findings"]) {
    const auto id = finding["id"].get<std::string>();
    if (finding["severity"] != "note" && before.count(id) == 0) {
      added.insert(id);
    }
  }
  return added;
}

// Returns an engine's configuration under an override. The override replaces
// rope_parameters, in which transformers 5 keeps all keys of a rope.
Json Overridden(Json config, const std::string& arguments) {
  std::smatch match;
  const std::regex flag(
      R"re(--(?:hf-overrides|json-model-override-args) '(\{.*\})')re");
  const std::string text =
      std::regex_replace(arguments, std::regex(R"(\\")"), "\"");
  if (!std::regex_search(text, match, flag)) return config;
  const Json override = Json::parse(match[1].str(), nullptr, false);
  const bool is_nested = override.contains("text_config");
  Json& part = is_nested ? config["text_config"] : config;
  for (const char* key :
       {"rope_scaling", "rope_theta", "partial_rotary_factor"}) {
    part.erase(key);
  }
  part.update(is_nested ? override["text_config"] : override);
  return config;
}

// Findings about base, width or axes themselves: their fixes change these.
constexpr const char* kAboutTheRope[] = {
    "config.head-dim-derived",      "config.partial-conflict",
    "config.partial-default",       "config.sections",
    "config.theta-absent",          "config.theta-conflict",
    "config.unlike-published",      "gguf.freq-base",
    "params.config-differs",        "runtime.flag-unread",
    "runtime.override-drops-theta", "tables.inv-freq-differs"};

bool IsAboutTheRope(const std::string& id) {
  return std::find(std::begin(kAboutTheRope), std::end(kAboutTheRope), id) !=
         std::end(kAboutTheRope);
}

// A finding that a corrected file may have, and why it is right.
struct Following {
  const char* id;
  std::set<std::string> next;
  const char* why;
};
const Following kFollowing[] = {
    {"config.both-spellings",
     {"config.new-spelling-only"},
     "older readers do not know the spelling that is left"},
    {"config.original-absent",
     {"config.factor-ratio", "config.length-not-raised"},
     "transformers takes the whole length for the original one"},
    {"config.partial-default",
     {"readers.pairing"},
     "mlx-lm's class of GLM rotates the whole head, whatever a file says"},
    {"config.sections",
     {"readers.axes"},
     "mlx-lm has one axis, once the others have three"},
    {"config.unlike-published",
     {"config.factor-ratio"},
     "the length is to follow the published factor"},
    {"gguf.scaling-type-missing",
     {"gguf.original-length"},
     "YaRN asks for a length, where linear scaling did not"},
    {"params.config-differs",
     {"readers.amplitude"},
     "some readers do not know attention_factor"},
    {"runtime.flag-unread",
     {"readers.frequencies", "gguf.swa"},
     "flags that count now change what the model has"}};

bool IsExpected(const std::string& id, const std::set<std::string>& added) {
  for (const Following& following : kFollowing) {
    if (id != following.id) continue;
    return std::includes(following.next.begin(), following.next.end(),
                         added.begin(), added.end());
  }
  return added.empty();
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
      EXPECT_TRUE(IsExpected(id, NewIds(bad, good)))
          << text << "\n"
          << testing::PrintToString(NewIds(bad, good));
      if (files.contains("config.json") && !IsAboutTheRope(id)) {
        const std::vector<Json> before = Ropes(files["config.json"]);
        const std::vector<Json> after = Ropes(Overridden(
            mended["config.json"], mended["arguments"].get<std::string>()));
        // Before the fix there is no rope if transformers refuses the type.
        if (before[0]["rotary_dim"] != nullptr) {
          EXPECT_EQ(after, before) << text;
        }
      }
      const Json* const left = FindId(good, id);
      // llama.cpp's part of the fix is a separate alternative.
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

// Content hashes of the first layers, as transformers reads them.
std::vector<std::string> Layers(const Json& config) {
  std::vector<std::string> hashes;
  for (std::int32_t layer = 0; layer < 8; ++layer) {
    core::doctor::LayerGroup group;
    group.index = layer;
    const auto rope =
        core::doctor::Resolve(config, *core::interpretation::FindReader("hf"),
                              group, core::doctor::Reach{8192});
    hashes.push_back(rope.ok() ? core::interpretation::ContentHash(*rope) : "");
  }
  return hashes;
}

// Applies each alternative of each finding's fix to a published model. Returns
// the alternatives that change the encoding of a layer.
std::vector<std::string> Spoiled(const Json& config) {
  core::doctor::DoctorInput input;
  input.path = "config.json";
  input.text = config.dump();
  const auto diagnosis = core::doctor::Diagnose({input}, {});
  if (!diagnosis.ok()) return {std::string(diagnosis.status().message())};
  const std::vector<std::string> before = Layers(config);
  std::vector<std::string> spoiled;
  for (const core::doctor::Finding& told : diagnosis->findings) {
    const Json finding = {
        {"id", told.id}, {"fix", told.fix}, {"keys", told.keys}};
    // The fix of this finding names another model's values on purpose.
    if (finding["id"] == "config.unlike-published") continue;
    const auto fix = finding["fix"].get<std::string>();
    for (const std::string& text : Alternatives(fix)) {
      Json files = {{"config.json", config}, {"arguments", ""}};
      if (text.empty() || IsElsewhere(text) || !Apply(text, finding, &files) ||
          Layers(files["config.json"]) == before) {
        continue;
      }
      spoiled.push_back(finding["id"].get<std::string>() + ": " + text);
    }
  }
  return spoiled;
}

// A published model was trained with the values of its file.
TEST(DoctorPublishedFixesTest, NoFixChangesTheEncodingOfAPreset) {
  for (const core::interpretation::Preset& preset :
       core::interpretation::Presets()) {
    EXPECT_THAT(Spoiled(Json::parse(preset.config_json)), testing::IsEmpty())
        << preset.name;
  }
}

TEST(DoctorPublishedFixesTest, NoFixChangesTheEncodingOfAPublishedModel) {
  std::ifstream file(std::filesystem::path(POSENC_TEST_DATA) / "parity" /
                     "published.jsonl");
  int models = 0;
  for (std::string line; std::getline(file, line); ++models) {
    const Json model = Json::parse(line);
    EXPECT_THAT(Spoiled(model["config"]), testing::IsEmpty()) << model["name"];
  }
  EXPECT_GE(models, 514);
}

}  // namespace
}  // namespace posenc::cli
