// The tables that FindFamily searches. Rows are in no order that matters: a
// model type stands in one of them only. Fields that a row leaves out have the
// defaults of Family, and those are the defaults of transformers' configuration
// classes.

#pragma once

#include "absl/types/span.h"
#include "core/model/families.h"

namespace posenc::core {

absl::Span<const Family> PlainFamilies();
absl::Span<const Family> MultiAxisFamilies();
absl::Span<const Family> LayeredFamilies();
absl::Span<const Family> LatentFamilies();
absl::Span<const Family> RemoteFamilies();

}  // namespace posenc::core
