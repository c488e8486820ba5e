// `posenc check`: compares a rotated file, element by element, with a rotation
// that client/check evaluates in long double.

#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/check/element.h"
#include "client/cli/commands.h"
#include "client/cli/connection.h"
#include "client/cli/print.h"
#include "client/cli/rotation.h"
#include "client/cli/safetensors.h"
#include "client/cli/status.h"

namespace posenc::cli {
namespace {

// `before` and `after` are files. `moved` is a third file, rotated from another
// start; its scores must agree with those of `after`.
struct CheckFlags {
  SourceFlags source;
  std::string before;
  std::string after;
  std::string moved;
  v1::Layout layout = v1::LAYOUT_UNSPECIFIED;
  std::int64_t start = 0;
  int repositions = 0;
};

// A .safetensors file and views of its q and k; at least one exists.
struct HeadsFile {
  FileBytes bytes;
  absl::optional<check::HeadsView> q;
  absl::optional<check::HeadsView> k;
};

absl::StatusOr<HeadsFile> ReadHeads(const std::string& path,
                                    v1::Layout layout) {
  HeadsFile heads;
  absl::StatusOr<FileBytes> bytes = FileBytes::Read(path);
  if (!bytes.ok()) return bytes.status();
  heads.bytes = *std::move(bytes);
  absl::StatusOr<Safetensors> file = ParseSafetensors(heads.bytes.bytes());
  if (!file.ok()) return FileError(path, file.status());
  for (const char* name : {"q", "k"}) {
    const SafetensorsEntry* const entry = file->Find(name);
    if (entry == nullptr) continue;
    const absl::StatusOr<TensorView> tensor = AsTensor(*entry);
    if (!tensor.ok()) return FileError(path, tensor.status());
    const absl::StatusOr<check::HeadsView> view =
        check::HeadsView::Of(*tensor, layout);
    if (!view.ok()) {
      return FileError(path, absl::StrCat(name, ": ", view.status().message()));
    }
    (*name == 'q' ? heads.q : heads.k) = *view;
  }
  if (!heads.q && !heads.k) {
    return FileError(path, absl::NotFoundError("holds neither q nor k"));
  }
  return heads;
}

// Checks both tensors, prints the result, and returns DATA_LOSS (exit code 1)
// if an element is wrong.
absl::Status CheckTensors(const v1::ResolveRopeResponse& rope,
                          const CheckFlags& flags, const HeadsFile& before,
                          const HeadsFile& after, const GlobalFlags& globals,
                          nlohmann::ordered_json* json) {
  std::string failures;
  for (const char* name : {"q", "k"}) {
    const auto& sent = *name == 'q' ? before.q : before.k;
    const auto& got = *name == 'q' ? after.q : after.k;
    if (!sent && !got) continue;
    if (!sent || !got) {
      return FileError(sent ? flags.after : flags.before,
                       absl::NotFoundError(absl::StrCat("lacks ", name)));
    }
    const absl::StatusOr<RotationCheck> verdict =
        CheckRotation(rope, *sent, *got, flags.start, flags.repositions);
    if (!verdict.ok()) return verdict.status();
    (*json)["rotation"][name] = {
        {"elements", verdict->elements},
        {"wrong", verdict->wrong},
        {"max_error_ulps", verdict->max_error_ulps},
        {"max_error_of_bound", verdict->max_error_of_bound}};
    if (!globals.json) {
      absl::PrintF(
          "  %s: %d elements, %d wrong; largest error %.4f ulp of %s, "
          "%.4f of its bound\n",
          name, verdict->elements, verdict->wrong, verdict->max_error_ulps,
          check::DtypeName(sent->tensor.dtype), verdict->max_error_of_bound);
    }
    if (verdict->wrong > 0) {
      absl::StrAppend(&failures, failures.empty() ? "" : "; ", name, ": ",
                      verdict->wrong, " of ", verdict->elements,
                      " elements differ from the rotation, the first at index ",
                      verdict->first_wrong);
    }
  }
  return failures.empty() ? absl::OkStatus() : absl::DataLossError(failures);
}

// Compares scores q . k of the two rotated files: with a rotary encoding they
// depend only on the distance of two tokens, not on their positions.
absl::Status CheckMoved(const CheckFlags& flags, const HeadsFile& after,
                        const GlobalFlags& globals,
                        nlohmann::ordered_json* json) {
  const absl::StatusOr<HeadsFile> moved = ReadHeads(flags.moved, flags.layout);
  if (!moved.ok()) return moved.status();
  if (!after.q || !after.k || !moved->q || !moved->k) {
    return UsageError("--moved: scores need q and k in both files");
  }
  const absl::StatusOr<ScoreCheck> verdict =
      CheckScores(*after.q, *after.k, *moved->q, *moved->k);
  if (!verdict.ok()) return verdict.status();
  (*json)["scores"] = {
      {"samples", verdict->samples},
      {"wrong", verdict->wrong},
      {"max_difference", verdict->max_difference},
      {"max_difference_of_bound", verdict->max_difference_of_bound},
      {"typical_score", verdict->typical_score}};
  if (!globals.json) {
    absl::PrintF(
        "  %d scores q.k (typically %.3g): moved, they differ by at most "
        "%.3g, %.3f of what rounding to %s allows\n",
        verdict->samples, verdict->typical_score, verdict->max_difference,
        verdict->max_difference_of_bound,
        check::DtypeName(after.q->tensor.dtype));
  }
  if (verdict->wrong == 0) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("scores: ", verdict->wrong, " of ", verdict->samples,
                   " depend on more than the distance of their positions"));
}

absl::Status RunCheck(const CheckFlags& flags, const GlobalFlags& globals) {
  absl::StatusOr<v1::RopeSource> source = BuildSource(flags.source);
  if (!source.ok()) return source.status();
  const absl::StatusOr<HeadsFile> before =
      ReadHeads(flags.before, flags.layout);
  if (!before.ok()) return before.status();
  const absl::StatusOr<HeadsFile> after = ReadHeads(flags.after, flags.layout);
  if (!after.ok()) return after.status();
  const absl::StatusOr<Connection> connection = Connection::Open(globals);
  if (!connection.ok()) return connection.status();
  // The server provides the frequencies and the attention factor; only its
  // rotation with them is checked.
  v1::ResolveRopeRequest request;
  *request.mutable_rope() = *std::move(source);
  if (request.rope().has_spec()) {
    request.set_head_dim(static_cast<std::int32_t>(
        (before->q ? before->q : before->k)->index.head_dim));
  }
  const absl::StatusOr<v1::ResolveRopeResponse> rope =
      connection->client().ResolveRope(request);
  if (!rope.ok()) return rope.status();

  nlohmann::ordered_json json;
  absl::Status status =
      CheckTensors(*rope, flags, *before, *after, globals, &json);
  if (status.ok() && !flags.moved.empty()) {
    status = CheckMoved(flags, *after, globals, &json);
  }
  if (status.ok() && globals.json) PrintJson(json);
  return status;
}

}  // namespace

Command AddCheck(CLI::App* app, const GlobalFlags* globals) {
  const auto flags = std::make_shared<CheckFlags>();
  AddSourceFlags(app, "", "Encoding", &flags->source);
  AddValue(app, "--before", &flags->before, "FILE",
           "A .safetensors file with q, k")
      ->required();
  AddValue(app, "--after", &flags->after, "FILE",
           "The same tensors, rotated forward")
      ->required();
  AddValue(app, "--moved", &flags->moved, "FILE",
           "The same tensors, rotated with another start: scores must agree");
  AddLayoutFlag(app, &flags->layout);
  AddValue(app, "--start", &flags->start, "N", "Position of the first token")
      ->capture_default_str();
  AddValue(app, "--repositions", &flags->repositions, "N",
           "How often --after was repositioned, at last to --start; each time "
           "rounds")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  return [flags, globals] { return RunCheck(*flags, *globals); };
}

}  // namespace posenc::cli
