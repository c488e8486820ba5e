// What the commands have in common that read a file, replace tensors in it by
// the server's answers, and write it: reposition, add and convert; apply prints
// like them.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/options.h"
#include "nlohmann/json.hpp"
#include "posenc/client.h"

namespace posenc::cli {

struct TransformFlags {
  std::string in;
  std::string out;
  std::vector<std::string> tensors;
};

// --in and --out alone.
void AddInOutFlags(CLI::App* app, std::string* in, std::string* out);

// `usual` says in the help of --tensor what is taken without it: "k, *.k".
void AddTransformFlags(CLI::App* app, const std::string& usual,
                       TransformFlags* flags);

// Calls `call` for every selected tensor, one after the other, with options
// that show the progress of a stream. Then writes the file, in which everything
// else is as it was, and prints what was done. `verb` says what:
// "repositioned". `usual` are the patterns that select tensors without
// --tensor. If a call fails, nothing is written and the error names the tensor.
absl::Status Transform(const TransformFlags& flags, const GlobalFlags& globals,
                       const std::string& verb,
                       const std::vector<std::string>& usual,
                       const std::function<absl::StatusOr<TensorResult>(
                           const std::string& name, const TensorView& tensor,
                           const CallOptions& options)>& call);

// How long the calls of a command took.
struct Timing {
  double seconds = 0;              // of the call, or of all calls
  int repeats = 0;                 // of the same call, after it
  double best_repeat_seconds = 0;  // if there were any
};

// Tells which tensors (JSON: dtype and shape by name) were sent for `out`, how
// many bytes they have and how fast they were. Rates count every byte of a
// tensor once, though it travels to the server and back.
void PrintDone(const GlobalFlags& globals, const std::string& verb,
               const std::string& out, const nlohmann::ordered_json& tensors,
               double bytes, const Timing& timing);

}  // namespace posenc::cli
