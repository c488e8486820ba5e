// The command's output, by the cases of tests/data/cli (see its README.md),
// with the service inside its process.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fixtures/claims.h"
#include "tests/fixtures/cli.h"
#include "tests/fixtures/model_files.h"

namespace posenc::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::vector<test::Claim>& Claims() {
  static const auto& all = *new std::vector(test::LoadClaims("cli"));
  return all;
}

class GoldenTest : public PosencTest,
                   public testing::WithParamInterface<std::size_t> {
 protected:
  void WriteFiles(const Json& files) {
    for (const auto& [name, content] : files.items()) {
      if (content.is_string()) {
        WriteText(name, content.get<std::string>());
      } else if (content.contains("architecture")) {
        WriteText(name, GgufBytes(content));
      } else if (content.contains("dtype")) {
        WriteArray(name, content);
      } else {
        std::vector<Named> tensors;
        for (const auto& [tensor, of] : content.items()) {
          tensors.push_back({tensor, of["shape"], of["values"]});
        }
        WriteSafetensorsFile(name, tensors);
      }
    }
  }

  void Take(const Json& step) {
    const struct {
      const char* key;
      int exit_code;
    } kErrors[] = {{"usage", 2}, {"file_error", 3}, {"refused", 1}};
    std::string line = step.value("run", "");
    int expected = step.value("exit", 0);
    for (const auto& [key, exit_code] : kErrors) {
      if (!step.contains(key)) continue;
      line = step[key].get<std::string>() + " --json";
      expected = exit_code;
    }
    ASSERT_FALSE(line.empty()) << step;
    const Outcome outcome = Shell(line);
    const std::string errors = ReadText(".errors");
    const std::string whole = outcome.text + errors;
    EXPECT_EQ(outcome.exit_code, expected) << line << "\n" << whole;
    if (!step.contains("run")) {
      const Json error = Json::parse(whole, nullptr, false);
      EXPECT_TRUE(error.is_object() && error.contains("error")) << whole;
      if (expected == 1) {
        EXPECT_THAT(whole, HasSubstr("ERROR_REASON_"));
      }
    }
    ExpectParts(step, "says", whole);
    ExpectParts(step, "out", outcome.text);
    ExpectParts(step, "err", errors);
    for (const Json& part : step.value("lacks", Json::array())) {
      EXPECT_THAT(whole, Not(HasSubstr(part.get<std::string>())));
    }
    ExpectJson(step, outcome.text.empty() ? errors : outcome.text);
    if (step.contains("complaints")) {
      EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'),
                step["complaints"].get<int>())
          << errors;
      EXPECT_THAT(errors, testing::StartsWith("posenc: "));
    }
    ExpectFiles(step);
  }

 private:
  template <typename T>
  void WriteNpyFile(const std::string& name, v1::Dtype dtype,
                    std::vector<std::int64_t> shape,
                    const std::vector<T>& elements) const {
    ASSERT_TRUE(
        WriteNpy(Path(name), View(dtype, std::move(shape), elements)).ok());
  }

  // A named tensor of float32.
  struct Named {
    std::string name;
    std::vector<std::int64_t> shape;
    std::vector<float> elements;
  };
  void WriteSafetensorsFile(const std::string& name,
                            const std::vector<Named>& tensors) const {
    Safetensors file;
    file.metadata = {{"origin", "test"}};
    for (const Named& tensor : tensors) {
      file.entries.push_back(*FromTensor(
          tensor.name, View(v1::DTYPE_FLOAT32, tensor.shape, tensor.elements)));
    }
    ASSERT_TRUE(WriteSafetensors(Path(name), file).ok());
  }

  // stderr goes to the file ".errors" of the folder.
  Outcome Shell(const std::string& line) {
    std::string script = absl::StrCat(
        "cd ", Quoted(Path("")),
        "\nDATA=" POSENC_TEST_DATA "\nposenc() { " POSENC_PATH " \"$@\"; }\n");
    for (const auto& [name, value] : variables_.items()) {
      absl::StrAppend(&script, name, "=", Quoted(value.get<std::string>()),
                      "\n");
    }
    WriteText(".run", absl::StrCat(script, "set -o pipefail\n{ ", line,
                                   "\n} 2>.errors\n"));
    return RunCommand("/bin/bash", Quoted(Path(".run")));
  }

  std::string ReadText(const std::string& name) const {
    std::ifstream file(Path(name), std::ios::binary);
    EXPECT_TRUE(file.is_open()) << name;
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  void WriteArray(const std::string& name, const Json& array) {
    const std::vector<std::int64_t> shape = array["shape"];
    const std::string dtype = array["dtype"];
    if (dtype == "float32") {
      WriteNpyFile<float>(name, v1::DTYPE_FLOAT32, shape, array["values"]);
    } else if (dtype == "float64") {
      WriteNpyFile<double>(name, v1::DTYPE_FLOAT64, shape, array["values"]);
    } else if (dtype == "int8") {
      WriteNpyFile<std::int8_t>(name, v1::DTYPE_INT8, shape, array["values"]);
    } else {
      ASSERT_EQ(dtype, "int64") << name;
      WriteNpyFile<std::int64_t>(name, v1::DTYPE_INT64, shape, array["values"]);
    }
  }

  static void ExpectParts(const Json& step, const char* key,
                          const std::string& text) {
    for (const Json& part : step.value(key, Json::array())) {
      EXPECT_THAT(text, HasSubstr(part.get<std::string>()));
    }
  }

  // [x, bound] stands for numbers at most `bound` from x.
  static void ExpectValue(const Json& actual, const Json& expected) {
    const bool near =
        expected.is_array() && expected.size() == 2 && !actual.is_array();
    if (near) {
      ASSERT_TRUE(actual.is_number()) << actual;
      EXPECT_NEAR(actual.get<double>(), expected[0].get<double>(),
                  expected[1].get<double>());
    } else if (expected.is_array() && actual.is_array()) {
      ASSERT_EQ(actual.size(), expected.size()) << actual;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        SCOPED_TRACE(i);
        ExpectValue(actual[i], expected[i]);
      }
    } else {
      EXPECT_EQ(actual, expected);
    }
  }

  static void ExpectJson(const Json& step, const std::string& text) {
    if (!step.contains("json") && !step.contains("sizes")) return;
    const Json actual = Json::parse(text, nullptr, false);
    ASSERT_FALSE(actual.is_discarded()) << text;
    const Json values = step.value("json", Json::object());
    for (const auto& [pointer, value] : values.items()) {
      SCOPED_TRACE(pointer);
      const Json::json_pointer at(pointer);
      ASSERT_TRUE(actual.contains(at)) << text;
      ExpectValue(actual[at], value);
    }
    const Json sizes = step.value("sizes", Json::object());
    for (const auto& [pointer, size] : sizes.items()) {
      EXPECT_EQ(Json(actual.value(Json::json_pointer(pointer), Json()).size()),
                size)
          << text;
    }
  }

  // Reads a tensor. `file` is a name such as "out.npy" or "out.safetensors:q".
  std::vector<double> Read(const std::string& file,
                           std::vector<std::int64_t>* shape) {
    const std::size_t colon = std::min(file.find(':'), file.size());
    return ReadElements(Path(file.substr(0, colon)),
                        colon == file.size() ? "" : file.substr(colon + 1),
                        shape);
  }

  void ExpectFiles(const Json& step) {
    const Json reads = step.value("reads", Json::object());
    for (const auto& [file, values] : reads.items()) {
      SCOPED_TRACE(file);
      ExpectValue(Json(Read(file, nullptr)), values);
    }
    const Json shapes = step.value("shapes", Json::object());
    for (const auto& [file, expected] : shapes.items()) {
      std::vector<std::int64_t> shape;
      Read(file, &shape);
      EXPECT_EQ(Json(shape), expected) << file;
    }
    for (const Json& pair : step.value("same", Json::array())) {
      const std::string first = ReadText(pair[0]);
      EXPECT_FALSE(first.empty()) << pair;
      EXPECT_EQ(first, ReadText(pair[1])) << pair;
    }
    for (const Json& name : step.value("absent", Json::array())) {
      EXPECT_FALSE(std::filesystem::exists(Path(name))) << name;
    }
  }

 protected:
  Json variables_ = Json::object();  // variables for the lines of bash
};

// An unknown key would be ignored, and the step would check nothing.
void CheckKeys(const Json& step) {
  static const auto& known = *new std::set<std::string>{
      "run",   "exit",   "usage", "file_error", "refused", "says",
      "lacks", "out",    "err",   "complaints", "json",    "sizes",
      "reads", "shapes", "same",  "absent"};
  for (const auto& [key, value] : step.items()) {
    EXPECT_EQ(known.count(key), 1u) << key;
  }
}

TEST_P(GoldenTest, Holds) {
  const Json& claim = Claims()[GetParam()].of;
  WriteFiles(claim.value("files", Json::object()));
  variables_ = claim.value("let", Json::object());
  ASSERT_FALSE(claim["steps"].empty());
  for (const Json& step : claim["steps"]) {
    SCOPED_TRACE(step.dump());
    CheckKeys(step);
    Take(step);
  }
}

INSTANTIATE_TEST_SUITE_P(, GoldenTest,
                         testing::Range(std::size_t{0}, Claims().size()),
                         [](const testing::TestParamInfo<std::size_t>& info) {
                           return Claims()[info.param].name;
                         });

}  // namespace
}  // namespace posenc::cli
