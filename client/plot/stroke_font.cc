#include "client/plot/stroke_font.h"

#include <array>
#include <cstddef>

namespace posenc::plot {
namespace {

// Strokes of the letters from '!' on, on a grid of 5 by 9 points: two digits
// are a point (x to the right, y up), spaces end a stroke. Capitals stand on 2
// and reach 8, small letters reach 6, what hangs below the line reaches 0. A
// stroke of two equal points is a dot.
constexpr std::array<const char*, 94> kLetters = {
    "2824 2222",                         // !
    "1817 3837",                         // "
    "1218 3238 0646 0444",               // #
    "473818070615354443321203 2921",     // $
    "0248 0808 4242",                    // %
    "4216172837360403122244",            // &
    "2827",                              // '
    "38262432",                          // (
    "18262412",                          // )
    "2327 0446 0644",                    // *
    "2327 0545",                         // +
    "2211",                              // ,
    "0545",                              // -
    "2222",                              // .
    "0248",                              // /
    "120307183847433212",                // 0
    "172822 1232",                       // 1
    "07183847460242",                    // 2
    "0718384746354443321203 3525",       // 3
    "32380444",                          // 4
    "480805354443321203",                // 5
    "4738180703123243443505",            // 6
    "084812",                            // 7
    "15060718384746351504031232434435",  // 8
    "4515060718384743321203",            // 9
    "2222 2525",                         // :
    "2211 2525",                         // ;
    "460442",                            // <
    "0444 0646",                         // =
    "064402",                            // >
    "07183847462524 2222",               // ?
    "43321203071838474424253545",        // @
    "022842 1434",                       // A
    "02083847463505 3544433202",         // B
    "4738180703123243",                  // C
    "02082846442202",                    // D
    "48080242 0535",                     // E
    "480802 0535",                       // F
    "47381807031232434525",              // G
    "0208 4248 0545",                    // H
    "1232 2228 1838",                    // I
    "4843321203",                        // J
    "0208 480542",                       // K
    "080242",                            // L
    "0208254842",                        // M
    "02084248",                          // N
    "120307183847433212",                // O
    "02083847463505",                    // P
    "120307183847433212 2442",           // Q
    "02083847463505 2542",               // R
    "473818070615354443321203",          // S
    "0848 2822",                         // T
    "080312324348",                      // U
    "082248",                            // V
    "0812253248",                        // W
    "0842 0248",                         // X
    "0825 4825 2522",                    // Y
    "08480242",                          // Z
    "38282232",                          // [
    "0842",                              // backslash
    "18282212",                          // ]
    "062846",                            // ^
    "0141",                              // _
    "1827",                              // `
    "4642 4536160503123243",             // a
    "0802 0516364543321203",             // b
    "4536160503123243",                  // c
    "4842 4536160503123243",             // d
    "04444536160503123243",              // e
    "38281712 0636",                     // f
    "4641301001 4536160503123243",       // g
    "0802 0516364542",                   // h
    "162622 1232 2828",                  // i
    "26362110 3838",                     // j
    "0802 360442",                       // k
    "18282332",                          // l
    "0206 05162522 25364542",            // m
    "0602 0516364542",                   // n
    "160503123243453616",                // o
    "0600 0516364543321203",             // p
    "4640 4536160503123243",             // q
    "0602 04263645",                     // r
    "45361605143443321203",              // s
    "1813223243 0636",                   // t
    "0603123243 4642",                   // u
    "062246",                            // v
    "0612253246",                        // w
    "0642 0246",                         // x
    "0622 4610",                         // y
    "06460242",                          // z
    "38272615242332",                    // {
    "2820",                              // |
    "18272635242312",                    // }
    "05163445",                          // ~
};
constexpr const char* kUnknown = "0208484202";

constexpr double kAdvance = 0.6;  // of the size
constexpr double kUnit = 0.115;   // of the size: capitals are 0.7 sizes high
constexpr double kBaseline = 2;   // in units above the grid's floor

}  // namespace

std::vector<std::vector<Point>> TextStrokes(const std::string& text,
                                            double size) {
  std::vector<std::vector<Point>> strokes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const unsigned char letter = static_cast<unsigned char>(text[i]);
    if (letter == ' ') continue;
    const bool known = letter > ' ' && letter < '!' + kLetters.size();
    const char* digits = known ? kLetters[letter - '!'] : kUnknown;
    const double left = kAdvance * size * static_cast<double>(i);
    strokes.emplace_back();
    while (*digits != '\0') {
      if (*digits == ' ') {
        strokes.emplace_back();
        ++digits;
        continue;
      }
      strokes.back().push_back({left + kUnit * size * (digits[0] - '0'),
                                -kUnit * size * (digits[1] - '0' - kBaseline)});
      digits += 2;
    }
  }
  return strokes;
}

}  // namespace posenc::plot
