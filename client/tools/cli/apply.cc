// `posenc apply`: rotates q and k of a file, which is the service's main job.
// One call sends both tensors. The rotated tensors replace the originals in a
// copy of the file.

#include <array>
#include <chrono>
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/tools/arguments/connection.h"
#include "client/tools/arguments/enum_flags.h"
#include "client/tools/arguments/transform.h"
#include "client/tools/cli/commands.h"
#include "client/tools/files/print.h"
#include "client/tools/files/status.h"
#include "client/tools/files/tensor_file.h"

namespace posenc::cli {
namespace {

// `q` and `k` are names in a .safetensors file. The tensor of an .npy file has
// no name, so `as` says whether it is q or k. `args` has the arguments that are
// neither tensors nor messages.
struct ApplyFlags {
  ApplyRopeArgs args;
  SourceFlags source;
  FieldFlags positions{v1::Positions::descriptor()};
  std::string in;
  std::string out;
  std::string q;
  std::string k;
  std::string as = "q";
};

// q and k, in this order.
constexpr const char* kNames[] = {"q", "k"};
using Chosen = std::array<SafetensorsEntry*, 2>;

absl::optional<TensorView>& Sent(ApplyRopeArgs* args, int which) {
  return which == 0 ? args->q : args->k;
}

// Finds the tensors to rotate, and sets the views of `args`. Tensors that flags
// name must exist. Without such flags, at least one of q and k must exist. The
// result points to the entries of the file that the answers replace; null if
// there is no such tensor. An .npy file has one entry, whose name is empty.
absl::StatusOr<Chosen> ChooseTensors(const ApplyFlags& flags, TensorFile* file,
                                     ApplyRopeArgs* args) {
  Chosen chosen = {};
  const std::string* const names[] = {&flags.q, &flags.k};
  if (file->is_npy()) {
    if (!flags.q.empty() || !flags.k.empty()) {
      return UsageError("--q, --k: an .npy file has one tensor; use --as");
    }
    chosen[flags.as == "q" ? 0 : 1] = file->Find("");
  } else {
    for (const int i : {0, 1}) {
      chosen[i] = file->Find(names[i]->empty() ? kNames[i] : *names[i]);
      if (chosen[i] != nullptr || names[i]->empty()) continue;
      return FileError(file->path(),
                       absl::NotFoundError(absl::StrCat("holds no tensor \"",
                                                        *names[i], "\"")));
    }
    if (chosen[0] == nullptr && chosen[1] == nullptr) {
      return FileError(flags.in,
                       absl::NotFoundError(
                           "holds no q and no k; name them with --q and --k"));
    }
    if (chosen[0] == chosen[1]) {
      return UsageError("--q and --k name the same tensor");
    }
  }
  for (const int i : {0, 1}) {
    if (chosen[i] == nullptr) continue;
    ASSIGN_OR_RETURN(Sent(args, i), InFile(file->path(), AsTensor(*chosen[i])));
  }
  return chosen;
}

absl::Status RunApply(const ApplyFlags& flags, const GlobalFlags& globals) {
  ApplyRopeArgs args = flags.args;
  ASSIGN_OR_RETURN(args.rope, BuildSource(flags.source));
  ASSIGN_OR_RETURN(args.positions, BuildPositions(flags.positions));
  ASSIGN_OR_RETURN(TensorFile file, TensorFile::Read("--in", flags.in));
  RETURN_IF_ERROR(file.CheckFormat(flags.out));
  ASSIGN_OR_RETURN(const Chosen chosen, ChooseTensors(flags, &file, &args));
  ASSIGN_OR_RETURN(const Connection connection, Connection::Open(globals));

  const double bytes = static_cast<double>((args.q ? args.q->bytes.size() : 0) +
                                           (args.k ? args.k->bytes.size() : 0));
  const auto begin = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const ApplyRopeResult result,
                   connection.client().ApplyRope(args));
  const std::chrono::duration<double> time =
      std::chrono::steady_clock::now() - begin;
  nlohmann::ordered_json tensors;
  for (const int i : {0, 1}) {
    const absl::optional<TensorView>& sent = Sent(&args, i);
    const absl::optional<TensorView>& got = i == 0 ? result.q : result.k;
    if (!sent) continue;
    tensors[kNames[i]] = TensorJson(*sent);
    chosen[i]->bytes = got->bytes;
  }
  RETURN_IF_ERROR(file.Write(flags.out));
  PrintDone(globals, "rotated", flags.out, tensors, bytes, time.count());
  return absl::OkStatus();
}

}  // namespace

Command AddApply(CLI::App* app, const GlobalFlags* globals) {
  const auto flags = std::make_shared<ApplyFlags>();
  AddSourceFlags(app, "", "Encoding", &flags->source);
  AddInOutFlags(app, &flags->in, &flags->out);
  AddFlag(app, "--q", &flags->q, "NAME", "Name of q in the file (default q)");
  AddFlag(app, "--k", &flags->k, "NAME", "Name of k in the file (default k)");
  AddFlag(app, "--as", &flags->as, "NAME", "Tensor in an .npy file: q or k",
          {.show_default = true, .fault = [](const std::string& name) {
             return name == "q" || name == "k" ? "" : name + " not in {q,k}";
           }});
  AddLayoutFlag(app, &flags->args.layout);
  flags->args.direction = v1::DIRECTION_FORWARD;
  AddEnumFlag(app, "--direction", &flags->args.direction,
              "forward, inverse or adjoint");
  AddSaturationFlag(app, &flags->args.saturation);
  AddPositionFlags(app, "", "Positions", &flags->positions);
  return [flags, globals] { return RunApply(*flags, *globals); };
}

}  // namespace posenc::cli
