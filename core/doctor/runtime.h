// The command line of an engine: its flags about rotary encodings, and how they
// replace keys of a GGUF.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/doctor/readers.h"
#include "core/interpretation/formats/gguf_rope.h"

namespace posenc::core::doctor {

struct Runtime {
  enum class Engine { kUnknown, kVllm, kSglang, kLlamaCpp };
  Engine engine = Engine::kUnknown;
  // The known flags with their values, in order.
  std::vector<std::pair<std::string, std::string>> flags;

  // Returns the value of the last flag with this name; null if no flag has it.
  const std::string* Find(absl::string_view flag) const;
  std::optional<double> Number(absl::string_view flag) const;
};

// True for the flags of vLLM and SGLang that change the configuration.
inline bool IsOverride(absl::string_view flag) {
  return flag == "--hf-overrides" || flag == "--json-model-override-args";
}

// The flags that set the longest sequence.
inline constexpr const char* kLengthFlags[] = {"--max-model-len",
                                               "--context-length", "-c"};

// Parses a flag's JSON. If the text is too long or is not JSON, is_discarded()
// of the result is true.
json ParseSmall(const std::string& text);

// Returns {"a": {"b": value}} for the path "a.b".
json Nested(absl::string_view path, json value);

// Splits a command line into words like a shell, and finds the known flags.
// Quotes work, and backslashes work outside of single quotes. Returns
// INVALID_ARGUMENT (field "runtime") for an open quote, or for a flag whose
// value is missing or broken JSON.
absl::StatusOr<Runtime> ParseRuntime(absl::string_view command);

// Returns the length that the engine serves; 0 if no flag sets it.
std::int64_t RuntimeLength(const Runtime& runtime);

// Replaces keys of a GGUF by values of flags, as llama.cpp does.
void ApplyRuntime(const Runtime& runtime, interpretation::GgufRope* gguf);

}  // namespace posenc::core::doctor
