#include "client/tools/arguments/transform.h"

#include <chrono>
#include <cstdio>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/tools/files/print.h"
#include "client/tools/files/status.h"
#include "client/tools/files/tensor_file.h"

namespace posenc::cli {
namespace {

// Puts the tensor's name, if it has one, before the status's message. Keeps the
// payloads, which hold the server's reason and the exit code.
absl::Status Named(const std::string& name, const absl::Status& status) {
  if (name.empty()) return status;
  absl::Status named(status.code(),
                     absl::StrCat("tensor \"", name, "\": ", status.message()));
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
    named.SetPayload(type, payload);
  });
  return named;
}

}  // namespace

void AddInOutFlags(CLI::App* app, std::string* in, std::string* out) {
  AddFlag(app, "--in", in, "FILE", "A .safetensors or .npy file",
          {.required = true});
  AddFlag(app, "--out", out, "FILE",
          "File of the same format; other tensors and metadata are copied",
          {.required = true});
}

void AddTensorFlag(CLI::App* app, const std::string& defaults,
                   std::vector<std::string>* tensors) {
  AddFlag(app, "--tensor", tensors, "PATTERN",
          "Names in a .safetensors file, with the shell's *, ? and "
          "[...]; may be repeated (default " +
              defaults + ")",
          {.one_value = true});
}

void AddTransformFlags(CLI::App* app, const std::string& defaults,
                       TransformFlags* flags) {
  AddInOutFlags(app, &flags->in, &flags->out);
  AddTensorFlag(app, defaults, &flags->tensors);
}

absl::Status Transform(
    const TransformFlags& flags, const GlobalFlags& globals,
    const std::string& verb, const std::vector<std::string>& defaults,
    const std::function<absl::StatusOr<TensorResult>(
        const SafetensorsEntry& entry, const TensorView& tensor)>& call) {
  ASSIGN_OR_RETURN(TensorFile file, TensorFile::Read("--in", flags.in));
  RETURN_IF_ERROR(file.CheckFormat(flags.out));
  ASSIGN_OR_RETURN(const auto selected, file.Select(flags.tensors, defaults));

  // `results` owns the bytes of the replaced entries, and must live until the
  // file is written.
  std::vector<TensorResult> results;
  nlohmann::ordered_json tensors;
  double bytes = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (SafetensorsEntry* const entry : selected) {
    ASSIGN_OR_RETURN(const TensorView tensor, AsTensor(*entry));
    absl::StatusOr<TensorResult> result = call(*entry, tensor);
    if (!result.ok()) return Named(entry->name, result.status());
    absl::StatusOr<SafetensorsEntry> replaced =
        FromTensor(entry->name, result->tensor);
    if (!replaced.ok()) return Named(entry->name, replaced.status());
    tensors[entry->name.empty() ? "tensor" : entry->name] =
        TensorJson(result->tensor);
    bytes += static_cast<double>(tensor.bytes.size());
    // The bytes of llama.cpp's blocks are INT8 in calls, but may be U8 in the
    // file. The entry keeps the file's name of the dtype.
    if (result->tensor.dtype == tensor.dtype) replaced->dtype = entry->dtype;
    *entry = *std::move(replaced);
    results.push_back(*std::move(result));
  }
  const std::chrono::duration<double> time =
      std::chrono::steady_clock::now() - begin;
  RETURN_IF_ERROR(file.Write(flags.out));
  PrintDone(globals, verb, flags.out, tensors, bytes, time.count());
  return absl::OkStatus();
}

void PrintDone(const GlobalFlags& globals, const std::string& verb,
               const std::string& out, const nlohmann::ordered_json& tensors,
               double bytes, double seconds) {
  const double rate = bytes / seconds / 1e9;
  if (globals.json) {
    PrintJson({{"out", out},
               {"tensors", tensors},
               {"bytes", bytes},
               {"seconds", seconds},
               {"gigabytes_per_second", rate}});
    return;
  }
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors.items()) names.push_back(name);
  constexpr std::size_t kShown = 4;
  const std::size_t more = names.size() > kShown ? names.size() - kShown : 0;
  names.resize(names.size() - more);
  // Prints to stderr, because the file may go to stdout (--out - or
  // /dev/stdout).
  std::fprintf(
      stderr,
      "  %s %s%s (%s) in %.1f ms: %.2f GB/s of tensor bytes, there and back\n",
      verb.c_str(), absl::StrJoin(names, ", ").c_str(),
      more > 0 ? absl::StrCat(" and ", more, " more").c_str() : "",
      BytesText(bytes).c_str(), seconds * 1e3, rate);
}

}  // namespace posenc::cli
