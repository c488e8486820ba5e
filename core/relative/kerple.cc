#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/relative/rule.h"

namespace posenc::core {
namespace {

absl::Status ValidateParameters(absl::string_view field,
                                const std::vector<double>& values,
                                double greatest) {
  if (values.empty()) {
    return FieldRequired(field, "is empty; give one per head");
  }
  for (std::size_t h = 0; h < values.size(); ++h) {
    if (values[h] > 0 && std::isfinite(values[h]) && values[h] <= greatest) {
      continue;
    }
    return FieldInvalid(
        absl::StrCat(field, "[", h, "]"),
        absl::StrCat(NumberText(values[h]),
                     std::isfinite(greatest)
                         ? absl::StrCat("; must be positive and at most ",
                                        NumberText(greatest))
                         : "; must be finite and positive"));
  }
  return absl::OkStatus();
}

absl::Status Validate(const Kerple& kerple) {
  if (kerple.kernel == KerpleKernel::kUnspecified) {
    return FieldRequired("kernel", "not set; must be LOGARITHMIC or POWER");
  }
  RETURN_IF_ERROR(ValidateParameters("r1", kerple.r1, INFINITY));
  // The power kernel is not conditionally positive definite for r2 > 2, so
  // greater values are refused.
  const double greatest = kerple.kernel == KerpleKernel::kPower ? 2 : INFINITY;
  RETURN_IF_ERROR(ValidateParameters("r2", kerple.r2, greatest));
  if (kerple.r1.size() == kerple.r2.size()) return absl::OkStatus();
  return FieldInvalid(
      "r2", absl::StrCat("has ", kerple.r2.size(), ", but r1 has ",
                         kerple.r1.size(), "; give one of each per head"));
}

}  // namespace

// Biases are evaluated in long double, because the functions of long double
// give the same results on every x86 CPU. The results of double's functions
// depend on the instruction set.
absl::StatusOr<BiasRule> MakeRule(const Kerple& kerple) {
  RETURN_IF_ERROR(Validate(kerple));
  const auto of_head = [kerple](std::int64_t head, const double* distance,
                                std::int64_t n, double* values) {
    const long double r1 = kerple.r1[head];
    const long double r2 = kerple.r2[head];
    for (std::int64_t s = 0; s < n; ++s) {
      const long double d = distance[s];
      const long double kernel = kerple.kernel == KerpleKernel::kLogarithmic
                                     ? std::log1p(r2 * d)
                                     : std::pow(d, r2);
      values[s] = static_cast<double>(0 - r1 * kernel);
    }
  };
  return DistanceRule({static_cast<std::int64_t>(kerple.r1.size()), of_head});
}

}  // namespace posenc::core
