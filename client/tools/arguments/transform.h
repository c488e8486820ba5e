// The common code of `posenc reposition`, `add` and `convert`. These commands
// read a file, replace tensors by the server's answers, and write the file.
// `posenc apply` uses only the flags and the summary.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/tools/arguments/options.h"
#include "client/tools/files/safetensors.h"
#include "nlohmann/json.hpp"
#include "posenc/client.h"

namespace posenc::cli {

struct TransformFlags {
  std::string in;
  std::string out;
  std::vector<std::string> tensors;
};

void AddInOutFlags(CLI::App* app, std::string* in, std::string* out);

// Adds --tensor. The flag's help shows `defaults`: "k, *.k".
void AddTensorFlag(CLI::App* app, const std::string& defaults,
                   std::vector<std::string>* tensors);

void AddTransformFlags(CLI::App* app, const std::string& defaults,
                       TransformFlags* flags);

// Calls `call` for every selected tensor, one after another, and replaces the
// tensor by the result. Then writes the file, whose other contents are
// unchanged, and prints a summary with `verb` ("repositioned"). Without
// --tensor, the patterns `defaults` select tensors. If a call fails, nothing is
// written and the error names the tensor.
absl::Status Transform(
    const TransformFlags& flags, const GlobalFlags& globals,
    const std::string& verb, const std::vector<std::string>& defaults,
    const std::function<absl::StatusOr<TensorResult>(
        const SafetensorsEntry& entry, const TensorView& tensor)>& call);

// Prints a summary after `out` is written: the tensors (as JSON with dtype and
// shape by name), their size and the rate. A rate counts every byte of a tensor
// once, although the byte is sent to the server and back.
void PrintDone(const GlobalFlags& globals, const std::string& verb,
               const std::string& out, const nlohmann::ordered_json& tensors,
               double bytes, double seconds);

}  // namespace posenc::cli
