#include "client/cli/text_plot.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace posenc::cli {
namespace {

// Columns and rows of the curve; labels and axis take 14 columns more, and the
// rest of 80 stays free.
constexpr std::size_t kWidth = 64;
constexpr int kHeight = 12;

}  // namespace

std::string Plot(absl::Span<const double> values, const std::string& first_x,
                 const std::string& last_x) {
  const std::size_t width = std::min(kWidth, values.size());
  std::vector<double> means(width);
  for (std::size_t i = 0; i < width; ++i) {
    const std::size_t begin = i * values.size() / width;
    const std::size_t end = (i + 1) * values.size() / width;
    for (std::size_t j = begin; j < end; ++j) means[i] += values[j];
    means[i] /= static_cast<double>(end - begin);
  }
  const auto [low, high] = std::minmax_element(means.begin(), means.end());
  const double range = *high > *low ? *high - *low : 1;
  std::vector<std::string> lines(kHeight, std::string(width, ' '));
  for (std::size_t i = 0; i < width; ++i) {
    const long from_top =
        std::lround((*high - means[i]) / range * (kHeight - 1));
    lines[static_cast<std::size_t>(from_top)][i] = '*';
  }
  std::string text;
  for (int row = 0; row < kHeight; ++row) {
    const std::string label = row == 0 ? absl::StrFormat("%.4g", *high)
                              : row == kHeight - 1
                                  ? absl::StrFormat("%.4g", *low)
                                  : "";
    absl::StrAppendFormat(&text, "  %10s |%s\n", label, lines[row]);
  }
  absl::StrAppendFormat(&text, "  %10s +%s\n", "", std::string(width, '-'));
  const std::size_t gap = width > first_x.size() + last_x.size()
                              ? width - first_x.size() - last_x.size()
                              : 1;
  absl::StrAppendFormat(&text, "  %10s  %s%s%s\n", "", first_x,
                        std::string(gap, ' '), last_x);
  return text;
}

}  // namespace posenc::cli
