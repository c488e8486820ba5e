// Macros that return an error to the caller, for functions that return a
// status.

#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns the status of `expression` if this status is an error.
#define RETURN_IF_ERROR(expression)                                      \
  do {                                                                   \
    if (absl::Status error_ = (expression); !error_.ok()) return error_; \
  } while (false)

// Assigns the value of an absl::StatusOr to `target`, which may declare a
// variable. If the StatusOr has no value, returns its status.
#define ASSIGN_OR_RETURN(target, ...) \
  ASSIGN_OR_RETURN_AT_(__LINE__, target, __VA_ARGS__)
#define ASSIGN_OR_RETURN_AT_(line, target, ...) \
  ASSIGN_OR_RETURN_AS_(line, target, __VA_ARGS__)  // expands __LINE__
#define ASSIGN_OR_RETURN_AS_(line, target, ...)   \
  auto or_##line = (__VA_ARGS__);                 \
  if (!or_##line.ok()) return or_##line.status(); \
  target = *std::move(or_##line)
