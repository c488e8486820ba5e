// Charts and heat maps without a server: scales, ticks, colours, and the SVG of
// a scene.

#include <cmath>
#include <limits>

#include "client/tools/plot/axis.h"
#include "client/tools/plot/chart.h"
#include "client/tools/plot/colors.h"
#include "client/tools/plot/heat_map.h"
#include "client/tools/plot/png.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fixtures/png.h"
#include "tests/fixtures/svg.h"

namespace posenc::plot {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Texts(const Scale& scale) {
  std::vector<std::string> texts;
  for (const Tick& tick : Ticks(scale)) texts.push_back(tick.text);
  return texts;
}

TEST(AxisTest, TicksAreRoundNumbers) {
  EXPECT_THAT(Texts({false, 0, 1}),
              ElementsAre("0", "0.2", "0.4", "0.6", "0.8", "1"));
  EXPECT_THAT(Texts({false, -130, 470}), ElementsAre("0", "200", "400"));
  EXPECT_THAT(Texts({true, 1, 100}),
              ElementsAre("1", "2", "5", "10", "20", "50", "100"));
  EXPECT_THAT(Texts({true, 0.5, 2e6}),
              ElementsAre("1", "10", "100", "1000", "10000", "100000", "1e6"));
  EXPECT_THAT(Texts({false, -0.5, 1.5, 0, 1, true}), ElementsAre("0", "1"));
  // Every fourth of thirty decades has a label.
  EXPECT_LE(Texts({true, 1e-10, 1e20}).size(), 9u);
}

TEST(AxisTest, ScalesMapTheirEndsToTheirPixels) {
  const Scale line{false, -2, 6, 100, 20};
  EXPECT_EQ(line.At(-2), 100);
  EXPECT_EQ(line.At(6), 20);
  EXPECT_EQ(line.At(2), 60);
  const Scale log{true, 1, 10000, 0, 400};
  EXPECT_NEAR(log.At(100), 200, 1e-9);
}

TEST(ColorsTest, CividisIsThePublishedMapAndLightnessGrows) {
  EXPECT_EQ(Cividis()[0], 0x00224eu);
  EXPECT_EQ(Cividis()[128], 0x7d7c78u);
  EXPECT_EQ(Cividis()[255], 0xfee838u);
  double last = -1;
  for (const Color color : Cividis()) {
    const double light = 0.2126 * (color >> 16 & 0xff) +
                         0.7152 * (color >> 8 & 0xff) + 0.0722 * (color & 0xff);
    // Rounding to bytes may undo a step of half a level.
    EXPECT_GT(light, last - 0.5);
    last = light;
  }
}

TEST(ColorsTest, LevelsCoverTheRangeAndClampOtherValues) {
  EXPECT_EQ(Level(-1, -1, 1), 0);
  EXPECT_EQ(Level(1, -1, 1), 255);
  EXPECT_EQ(Level(5, -1, 1), 255);
  EXPECT_EQ(Level(-5, -1, 1), 0);
  EXPECT_EQ(Level(0.25, -1, 1), 159);  // 255 * 0.625 = 159.4
  EXPECT_EQ(Level(std::numeric_limits<double>::quiet_NaN(), 0, 1), 0);
  EXPECT_EQ(Level(-std::numeric_limits<double>::infinity(), 0, 1), 0);
}

Chart Line() {
  Chart chart;
  chart.title = "A <title> & \"more\"\n";
  chart.description = "it's";
  chart.x.label = "x";
  chart.y.label = "y";
  chart.curves = {{"one", {{0, 0}, {10, 1}}}, {"two", {{0, 1}, {10, 0}}}};
  return chart;
}

TEST(SvgTest, IsWellFormedWhateverTheTextsAre) {
  const std::string svg = Draw(Line(), 800, 480);
  const std::optional<Element> root = ParseXml(svg);
  ASSERT_TRUE(root.has_value()) << svg;
  EXPECT_EQ(root->All("title")[0]->text, "A <title> & \"more\" ");
  EXPECT_EQ(root->All("desc")[0]->text, "it's");
  EXPECT_EQ(root->attributes.at("role"), "img");
  EXPECT_EQ(root->attributes.at("aria-labelledby"), "title desc");
}

TEST(SvgTest, CurvesDifferByDashAndColor) {
  const auto root = ParseXml(Draw(Line(), 800, 480));
  const auto curves = root->All("polyline", "curve");
  ASSERT_EQ(curves.size(), 2u);
  EXPECT_EQ(curves[0]->attributes.count("stroke-dasharray"), 0u);
  EXPECT_EQ(curves[1]->attributes.count("stroke-dasharray"), 1u);
  EXPECT_NE(curves[0]->attributes.at("stroke"),
            curves[1]->attributes.at("stroke"));
  EXPECT_EQ(root->All("text", "legend").size(), 2u);
}

TEST(ChartTest, LeavesOutPointsThatAnAxisCannotShow) {
  Chart chart = Line();
  chart.y.log = true;
  chart.curves = {
      {"one", {{0, 1}, {1, 0}, {2, -1}, {3, std::nan("")}, {4, 100}}}};
  const auto root = ParseXml(Draw(chart, 800, 480));
  EXPECT_EQ(PointsOf(*root->All("polyline", "curve")[0]).size(), 2u);
}

TEST(ChartTest, HasAPlaneWithoutAnyPoint) {
  Chart chart = Line();
  chart.curves = {{"none", {}}};
  for (const bool log : {false, true}) {
    chart.x.log = chart.y.log = log;
    EXPECT_TRUE(ParseXml(Draw(chart, 320, 200)).has_value());
  }
}

TEST(ChartTest, ScalesOfTheGreatestNumbersAreFinite) {
  const double greatest = std::numeric_limits<double>::max();
  for (const double low : {-greatest, 0.9 * greatest, greatest}) {
    Chart chart = Line();
    chart.curves = {{"one", {{0, low}, {1, greatest}}}};
    const std::string svg = Draw(chart, 800, 480);
    EXPECT_EQ(svg.find("nan"), std::string::npos) << svg;
    EXPECT_EQ(svg.find("inf"), std::string::npos) << svg;
  }
}

TEST(PngTest, LevelsComeBackAsTheirColors) {
  const std::uint8_t levels[] = {0, 128, 255, 64, 8, 248};
  EXPECT_THAT(DecodePng(CividisPng(3, 2, levels)),
              ElementsAre(ElementsAre(0x00224e, 0x7d7c78, 0xfee838),
                          ElementsAre(0x434e6c, 0x00285b, 0xf9e03a)));
}

TEST(HeatMapTest, NumbersStandAtTheMiddleOfTheirCells) {
  HeatMap map;
  map.low = -1;
  map.matrices.push_back({"", 2, 2, 5, {-1, 1, 0, -1}});
  const auto root = ParseXml(Draw(map, 400, 300));
  const auto rows = root->All("text", "tick-y");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]->text, "5");
  EXPECT_EQ(rows[1]->text, "6");
  const Element& cells = *root->All("image", "cells")[0];
  EXPECT_THAT(DecodeEmbedded(cells.attributes.at("href")),
              ElementsAre(ElementsAre(Cividis()[0], Cividis()[255]),
                          ElementsAre(Cividis()[128], Cividis()[0])));
  // The baseline of a text lies 4 pixels below its middle.
  EXPECT_NEAR(rows[0]->Number("y") - 4,
              cells.Number("y") + cells.Number("height") / 4, 0.02);
}

TEST(ChartTest, CurvesOfTheSamePointsAreOneWithBothNames) {
  Chart chart;
  chart.curves = {{"a", {{0, 1}, {1, 2}}},
                  {"b", {{0, 1}, {1, 3}}},
                  {"c", {{0, 1}, {1, 2}}}};
  const auto root = ParseXml(Draw(chart, 400, 300));
  std::vector<std::string> names;
  for (const Element* const curve : root->All("polyline", "curve")) {
    names.push_back(curve->All("title")[0]->text);
  }
  EXPECT_THAT(names, ElementsAre("a, c", "b"));
}

}  // namespace
}  // namespace posenc::plot
