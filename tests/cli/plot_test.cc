// `posenc plot`: the pictures show the numbers of the formulas, which are
// repeated here.

#include <cmath>
#include <fstream>
#include <numbers>
#include <sstream>

#include "gtest/gtest.h"
#include "tests/fixtures/cli.h"
#include "tests/fixtures/png.h"
#include "tests/fixtures/svg.h"

namespace posenc::cli {
namespace {

using plot::Element;

constexpr double kPi = std::numbers::pi;

// Four pairs, with the frequencies 1, 0.1, 0.01 and 0.001.
const char kEight[] =
    " --spec '{\"rotaryDim\":8,\"pairing\":\"PAIRING_HALF_SPLIT\"}' ";

class PlotTest : public PosencTest {
 protected:
  std::string Text(const std::string& name) const {
    std::ifstream in(Path(name), std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }

  // Draws to a file and parses it.
  Element Svg(const std::string& arguments) {
    const Outcome outcome =
        Posenc("plot " + arguments + " --output " + Quoted(Path("p.svg")));
    EXPECT_EQ(outcome.exit_code, 0) << arguments << outcome.text;
    const std::optional<Element> root = plot::ParseXml(Text("p.svg"));
    EXPECT_TRUE(root.has_value()) << arguments;
    return root.value_or(Element{});
  }

  Json Numbers(const std::string& arguments) {
    const Outcome outcome = Posenc("plot --json " + arguments);
    EXPECT_EQ(outcome.exit_code, 0) << arguments << outcome.text;
    return outcome.json();
  }
};

TEST_F(PlotTest, EveryFigureIsSvgWithTitleDescriptionAndMarks) {
  const std::string eight = kEight;
  for (const std::string& arguments :
       {"frequencies" + eight, "wavelengths" + eight + "--trained-length 100",
        "angles" + eight + "--rows 9", "table" + eight + "--rows 9",
        "table --channels 3 --rows 9" + eight,
        std::string("table --sinusoidal 16 --order interleaved --rows 9"),
        std::string("table --sincos-grid 16 --extents 3x4"),
        "rotation --position 3" + eight, "decay" + eight, "similarity" + eight,
        "similarity --image 4x6" + eight,
        std::string("compare --preset gpt-oss-20b"),
        std::string("kept --preset gpt-oss-20b")}) {
    const Element root = Svg(arguments);
    ASSERT_EQ(root.name, "svg") << arguments;
    ASSERT_FALSE(root.All("title").empty()) << arguments;
    EXPECT_GT(root.All("title")[0]->text.size(), 8u) << arguments;
    EXPECT_GT(root.All("desc")[0]->text.size(), 20u) << arguments;
    EXPECT_GE(root.All("polyline", "curve").size() + root.All("image").size(),
              1u)
        << arguments;
    EXPECT_GE(root.All("text", "tick-x").size(), 2u) << arguments;
  }
}

TEST_F(PlotTest, PointsOfTheFrequenciesAreTheFormula) {
  const Element root =
      Svg("frequencies --spec "
          "'{\"rotaryDim\":64,\"ropeTheta\":500000,\"pairing\":"
          "\"PAIRING_HALF_SPLIT\"}'");
  const auto curves = root.All("polyline", "curve");
  ASSERT_EQ(curves.size(), 1u);
  const auto points = plot::PointsOf(*curves[0]);
  ASSERT_EQ(points.size(), 32u);
  const plot::TickScale x(root, true, false), y(root, false, true);
  for (int i = 0; i < 32; ++i) {
    // Coordinates, also of ticks, are rounded to 0.01 pixels.
    EXPECT_NEAR(x.At(points[i].first), i, 0.03 * x.Slope());
    EXPECT_NEAR(std::log(y.At(points[i].second)),
                -2.0 * i / 64 * std::log(500000.0), 0.03 * y.Slope());
  }
}

TEST_F(PlotTest, NumbersOfEachFigureAreTheFormulas) {
  const double w[] = {1, 0.1, 0.01, 0.001};
  const Json frequencies = Numbers(std::string("frequencies") + kEight);
  const Json wavelengths = Numbers(std::string("wavelengths") + kEight);
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(frequencies["curves"][0]["y"][i].get<double>(), w[i],
                1e-15 * w[i]);
    EXPECT_NEAR(wavelengths["curves"][0]["y"][i].get<double>() * w[i], 2 * kPi,
                1e-14);
  }
  const std::string range = " --max-distance 300 --distance-step 7 ";
  const Json decay = Numbers("decay" + range + kEight);
  const Json similarity = Numbers("similarity" + range + kEight);
  ASSERT_EQ(decay["curves"][0]["x"].size(), 43u);  // 0, 7, ... 294
  for (int step = 0; step < 43; ++step) {
    const double r = 7 * step;
    double real = 0, imaginary = 0, bound = 0, mean = 0;
    for (const double frequency : w) {
      real += std::cos(r * frequency);
      imaginary += std::sin(r * frequency);
      bound += std::hypot(real, imaginary) / 4;
      mean += std::cos(r * frequency) / 4;
    }
    EXPECT_EQ(decay["curves"][0]["x"][step], r);
    EXPECT_NEAR(decay["curves"][0]["y"][step].get<double>(), bound, 1e-13);
    EXPECT_NEAR(similarity["curves"][0]["y"][step].get<double>(), mean, 1e-13);
  }
  const Json angles =
      Numbers("angles --start 5 --rows 3" + std::string(kEight));
  const Json table = Numbers("table --start 5 --rows 3" + std::string(kEight));
  ASSERT_EQ(angles["matrices"][0]["values"].size(), 12u);
  ASSERT_EQ(table["matrices"].size(), 2u);
  for (int row = 0; row < 3; ++row) {
    for (int i = 0; i < 4; ++i) {
      const double angle = (5 + row) * w[i];
      const std::size_t at = 4 * row + i;
      EXPECT_NEAR(angles["matrices"][0]["values"][at].get<double>(),
                  angle / (2 * kPi), 1e-15 * (1 + angle));
      // Tables are float32.
      EXPECT_NEAR(table["matrices"][0]["values"][at].get<double>(),
                  std::cos(angle), 0x1p-24);
      EXPECT_NEAR(table["matrices"][1]["values"][at].get<double>(),
                  std::sin(angle), 0x1p-24);
    }
  }
}

TEST_F(PlotTest, KeptIsTheMeanCosineOfTheDifferences) {
  const Json json = Numbers(
      "kept --max-distance 1000 --spec "
      "'{\"rotaryDim\":4,\"pairing\":\"PAIRING_HALF_SPLIT\"}' --compare-spec "
      "'{\"rotaryDim\":4,\"pairing\":\"PAIRING_HALF_SPLIT\",\"linear\":"
      "{\"factor\":2}}'");
  // Frequencies 1 and 0.01 against their halves.
  const Json& curve = json["curves"][0];
  ASSERT_GT(curve["x"].size(), 100u);
  EXPECT_EQ(curve["x"][0], 1);
  EXPECT_EQ(curve["x"].back(), 1000);
  for (std::size_t i = 0; i < curve["x"].size(); ++i) {
    const double r = curve["x"][i];
    EXPECT_NEAR(curve["y"][i].get<double>(),
                (std::cos(r * 0.5) + std::cos(r * 0.005)) / 2, 1e-12);
  }
}

TEST_F(PlotTest, InAnImageTheEndOfTheRowLooksNearerThanTheCellBelow) {
  const std::string spec =
      "{\"rotaryDim\":64,\"pairing\":\"PAIRING_HALF_SPLIT\"";
  const Json json =
      Numbers("similarity --image 64x64 --spec '" + spec +
              "}' --compare-spec '" + spec +
              ",\"axes\":{\"assignment\":\"ASSIGNMENT_PER_AXIS\",\"sections\":"
              "[16,16]}}'");
  ASSERT_EQ(json["matrices"].size(), 2u);
  const Json& line = json["matrices"][0]["values"];
  const Json& plane = json["matrices"][1]["values"];
  ASSERT_EQ(line.size(), 4096u);
  const auto expected = [](double distance, int pairs, double width) {
    double sum = 0;
    for (int i = 0; i < pairs; ++i) {
      sum += std::cos(distance * std::pow(10000.0, -2 * i / width));
    }
    return sum;
  };
  for (int cell : {1, 63, 64, 65, 2000, 4095}) {
    EXPECT_NEAR(line[cell].get<double>(), expected(cell, 32, 64) / 32, 1e-12);
    const int row = cell / 64, column = cell % 64;
    EXPECT_NEAR(plane[cell].get<double>(),
                (expected(row, 16, 32) + expected(column, 16, 32)) / 32, 1e-12);
  }
  EXPECT_GT(line[63], line[64]);
  EXPECT_LT(plane[63], plane[64]);
}

std::vector<std::vector<std::uint32_t>> Embedded(const Element& image) {
  return plot::DecodeEmbedded(image.attributes.at("href"));
}

TEST_F(PlotTest, PixelsOfAHeatMapHaveTheColorsOfTheirValues) {
  const Element root = Svg("table --rows 33" + std::string(kEight));
  const auto images = root.All("image", "cells");
  ASSERT_EQ(images.size(), 3u);  // cosines, sines, the scale of colours
  const auto cosines = Embedded(*images[0]), sines = Embedded(*images[1]);
  ASSERT_EQ(cosines.size(), 33u);
  ASSERT_EQ(cosines[0].size(), 4u);
  EXPECT_EQ(cosines[0][0], 0xfee838u);  // 1
  EXPECT_EQ(sines[0][0], 0x7d7c78u);    // 0
  // Colours 32, 144, 160 and 248 of matplotlib 3.10's cividis.
  const auto level = [](double value) {
    return std::lround(255 * (value + 1) / 2);
  };
  ASSERT_EQ(level(std::cos(29)), 32);
  EXPECT_EQ(cosines[29][0], 0x1a386fu);
  ASSERT_EQ(level(std::sin(13 * 0.01)), 144);
  EXPECT_EQ(sines[13][2], 0x8c8878u);
  ASSERT_EQ(level(std::sin(26 * 0.01)), 160);
  EXPECT_EQ(sines[26][2], 0x9b9476u);
  ASSERT_EQ(level(std::sin(19 * 0.1)), 248);
  EXPECT_EQ(sines[19][1], 0xf9e03au);
}

TEST_F(PlotTest, ColorsOfTrainedRowsReachAsFarAsTheirValues) {
  const float rows[] = {0.01F, -0.02F, 0, 0.02F};
  ASSERT_TRUE(WriteNpy(Path("rows.npy"),
                       {v1::DTYPE_FLOAT32,
                        {2, 2},
                        {reinterpret_cast<const char*>(rows), sizeof(rows)}})
                  .ok());
  const Element root =
      Svg("table --rows 2 --learned " + Quoted(Path("rows.npy")));
  const auto cells = Embedded(*root.All("image", "cells")[0]);
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_EQ(cells[0][1], 0x00224eu);
  EXPECT_EQ(cells[1][0], 0x7d7c78u);
  EXPECT_EQ(cells[1][1], 0xfee838u);
}

TEST_F(PlotTest, ATableOf8192By1024IsAnImage) {
  const Element root =
      Svg("table --rows 8192 --spec "
          "'{\"rotaryDim\":2048,\"pairing\":\"PAIRING_HALF_SPLIT\"}'");
  const auto cells = Embedded(*root.All("image", "cells")[0]);
  ASSERT_EQ(cells.size(), 8192u);
  EXPECT_EQ(cells[0].size(), 1024u);
  EXPECT_LT(Text("p.svg").size(), 16u << 20);
}

}  // namespace
}  // namespace posenc::cli
