#include "server/kserve/datatypes.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace posenc::server {
namespace {

struct Datatype {
  absl::string_view name;
  v1::Dtype dtype;
  inference::DataType config;
};

constexpr Datatype kDatatypes[] = {
    {"FP32", v1::DTYPE_FLOAT32, inference::TYPE_FP32},
    {"FP16", v1::DTYPE_FLOAT16, inference::TYPE_FP16},
    {"BF16", v1::DTYPE_BFLOAT16, inference::TYPE_BF16},
    {"FP64", v1::DTYPE_FLOAT64, inference::TYPE_FP64},
    // Triton's configurations have no such types.
    {"FP8E4M3", v1::DTYPE_FLOAT8_E4M3FN, inference::TYPE_INVALID},
    {"FP8E5M2", v1::DTYPE_FLOAT8_E5M2, inference::TYPE_INVALID},
    {"INT32", v1::DTYPE_INT32, inference::TYPE_INT32},
    {"INT64", v1::DTYPE_INT64, inference::TYPE_INT64},
};

}  // namespace

v1::Dtype DtypeOf(absl::string_view datatype) {
  for (const Datatype& known : kDatatypes) {
    if (known.name == datatype) return known.dtype;
  }
  return v1::DTYPE_UNSPECIFIED;
}

absl::string_view DatatypeName(core::Dtype dtype) {
  for (const Datatype& known : kDatatypes) {
    if (known.dtype == static_cast<v1::Dtype>(dtype)) return known.name;
  }
  return "";
}

inference::DataType ConfigTypeOf(absl::string_view datatype) {
  for (const Datatype& known : kDatatypes) {
    if (known.name == datatype) return known.config;
  }
  return inference::TYPE_INVALID;
}

std::string DatatypeNames() {
  return absl::StrJoin(kDatatypes, ", ",
                       [](std::string* out, const Datatype& known) {
                         absl::StrAppend(out, known.name);
                       });
}

}  // namespace posenc::server
