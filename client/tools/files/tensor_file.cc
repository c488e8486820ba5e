#include "client/tools/files/tensor_file.h"

#include <fnmatch.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/tools/files/npy.h"
#include "client/tools/files/status.h"

namespace posenc::cli {
namespace {

constexpr char kNpy[] = ".npy";
constexpr char kSafetensors[] = ".safetensors";

// Lists the first 8 tensors of a file, for an error about a missing tensor.
std::string Names(const std::vector<SafetensorsEntry>& entries) {
  constexpr std::size_t kShown = 8;
  const std::size_t shown = std::min(kShown, entries.size());
  return absl::StrCat(
      "it has ",
      absl::StrJoin(entries.begin(), entries.begin() + shown, ", ",
                    [](std::string* out, const SafetensorsEntry& entry) {
                      absl::StrAppend(out, entry.name);
                    }),
      entries.empty() ? "no tensor"
      : entries.size() > shown
          ? absl::StrCat(" and ", entries.size() - shown, " more")
          : "");
}

absl::Status Copy(const TensorFile& file, const std::string& name,
                  v1::Tensor* tensor) {
  for (const SafetensorsEntry& entry : file.entries()) {
    if (entry.name != name) continue;
    ASSIGN_OR_RETURN(const auto view, InFile(file.path(), AsTensor(entry)));
    *tensor = ToTensor(view);
    return absl::OkStatus();
  }
  return FileError(file.path(), absl::NotFoundError(absl::StrCat(
                                    "holds no tensor \"", name, "\"; ",
                                    Names(file.entries()))));
}

}  // namespace

absl::StatusOr<TensorFile> TensorFile::Read(const std::string& flag,
                                            const std::string& path) {
  TensorFile result;
  result.path_ = path;
  result.npy_ = HasExtension(path, kNpy);
  if (!result.npy_ && !HasExtension(path, kSafetensors) &&
      !IsStandardStream(path)) {
    return UsageError(
        absl::StrCat(flag, ": must end with .npy or .safetensors"));
  }
  ASSIGN_OR_RETURN(result.bytes_, FileBytes::Read(path));
  if (IsStandardStream(path)) result.npy_ = IsNpy(result.bytes_.bytes());
  if (result.npy_) {
    ASSIGN_OR_RETURN(const TensorView view,
                     InFile(path, ParseNpy(result.bytes_.bytes())));
    ASSIGN_OR_RETURN(result.file_.entries.emplace_back(),
                     InFile(path, FromTensor("", view)));
  } else {
    ASSIGN_OR_RETURN(result.file_,
                     InFile(path, ParseSafetensors(result.bytes_.bytes())));
  }
  return result;
}

absl::StatusOr<std::vector<SafetensorsEntry*>> TensorFile::Select(
    const std::vector<std::string>& wanted,
    const std::vector<std::string>& defaults) {
  if (npy_) {
    if (!wanted.empty()) {
      return UsageError("--tensor: an .npy file has one tensor, without name");
    }
    return std::vector<SafetensorsEntry*>{&file_.entries[0]};
  }
  for (const std::string& pattern : wanted) {
    const auto matches = [&](const SafetensorsEntry& entry) {
      return Matches(entry.name, {pattern});
    };
    if (std::none_of(entries().begin(), entries().end(), matches)) {
      return FileError(path_, absl::NotFoundError(absl::StrCat(
                                  "holds no tensor that matches \"", pattern,
                                  "\"; ", Names(entries()))));
    }
  }
  std::vector<SafetensorsEntry*> selected;
  for (SafetensorsEntry& entry : file_.entries) {
    if (!Matches(entry.name, wanted.empty() ? defaults : wanted)) continue;
    RETURN_IF_ERROR(InFile(path_, AsTensor(entry)).status());
    selected.push_back(&entry);
  }
  if (selected.empty()) {
    return FileError(
        path_, absl::NotFoundError(absl::StrCat(
                   "holds no tensor named ", absl::StrJoin(defaults, ", "),
                   "; choose one with --tensor: ", Names(entries()))));
  }
  return selected;
}

absl::Status TensorFile::CheckFormat(const std::string& out) const {
  if (IsStandardStream(out) || HasExtension(out, npy_ ? kNpy : kSafetensors)) {
    return absl::OkStatus();
  }
  return UsageError(absl::StrCat("--out: --in is ",
                                 npy_ ? "an .npy" : "a .safetensors",
                                 " file; the extension differs from that"));
}

absl::Status TensorFile::Write(const std::string& path) const {
  if (!npy_) return WriteSafetensors(path, file_);
  ASSIGN_OR_RETURN(const auto tensor, InFile(path, AsTensor(file_.entries[0])));
  return WriteNpy(path, tensor);
}

absl::Status CheckOut(const std::string& path) {
  if (path.empty() || HasExtension(path, kNpy) ||
      HasExtension(path, kSafetensors) || IsStandardStream(path)) {
    return absl::OkStatus();
  }
  return UsageError("--out: must end with .npy or .safetensors");
}

bool IsNpyOutput(const std::string& path) {
  return HasExtension(path, kNpy) || IsStandardStream(path);
}

absl::Status WriteTensor(const std::string& path, const std::string& name,
                         const TensorView& tensor) {
  if (IsNpyOutput(path)) return WriteNpy(path, tensor);
  ASSIGN_OR_RETURN(const auto entry, InFile(path, FromTensor(name, tensor)));
  return WriteSafetensors(path, {{entry}, {}});
}

bool Matches(const std::string& name,
             const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) {
                       return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
                     });
}

absl::Status ReadTensor(const std::string& flag, const std::string& argument,
                        v1::Tensor* tensor) {
  std::string path = argument, name;
  const std::size_t colon = argument.rfind(absl::StrCat(kSafetensors, ":"));
  if (colon != std::string::npos) {
    path = argument.substr(0, colon + sizeof(kSafetensors) - 1);
    name = argument.substr(path.size() + 1);
  } else if (absl::StartsWith(argument, "-:")) {
    path = argument.substr(0, 1);
    name = argument.substr(2);
  }
  ASSIGN_OR_RETURN(TensorFile file, TensorFile::Read(flag, path));
  if (name.empty()) {
    if (file.entries().size() != 1) {
      return FileError(path, absl::NotFoundError(absl::StrCat(
                                 "name one tensor as FILE.safetensors:NAME; ",
                                 Names(file.entries()))));
    }
    name = file.entries()[0].name;
  }
  return Copy(file, name, tensor);
}

absl::Status ReadTensors(
    const std::string& flag, const std::string& path,
    const std::vector<std::pair<std::string, v1::Tensor*>>& targets) {
  if (!HasExtension(path, kSafetensors) && !IsStandardStream(path)) {
    return UsageError(absl::StrCat(flag, ": a .safetensors file is needed"));
  }
  ASSIGN_OR_RETURN(const TensorFile file, TensorFile::Read(flag, path));
  for (const auto& [name, tensor] : targets) {
    RETURN_IF_ERROR(Copy(file, name, tensor));
  }
  return absl::OkStatus();
}

}  // namespace posenc::cli
