#include <chrono>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/commands.h"
#include "client/cli/element.h"
#include "client/cli/npy.h"
#include "client/cli/progress.h"
#include "client/cli/safetensors.h"
#include "client/cli/session.h"
#include "client/cli/status.h"

namespace posenc::cli {
namespace {

struct ApplyFlags {
  SourceFlags source;
  PositionFlags positions;
  std::string in;
  std::string out;
  std::string q;
  std::string k;
  std::string as = "q";
  std::string layout;
  std::string direction = "forward";
};

// What --in holds. The views are of `bytes`.
struct Input {
  FileBytes bytes;
  Safetensors file;  // empty for .npy
  SafetensorsEntry* q = nullptr;
  SafetensorsEntry* k = nullptr;
};

// The tensor to rotate: the one that the flag names, or the usual one if it is
// there.
absl::Status Choose(const std::string& path, const std::string& flag,
                    const char* usual, Safetensors* file,
                    SafetensorsEntry** entry,
                    absl::optional<TensorView>* view) {
  *entry = file->Find(flag.empty() ? usual : flag);
  if (*entry == nullptr) {
    if (flag.empty()) return absl::OkStatus();
    return FileError(path, absl::NotFoundError(
                               absl::StrCat("holds no tensor \"", flag, "\"")));
  }
  const absl::StatusOr<TensorView> tensor = AsTensor(**entry);
  if (!tensor.ok()) return FileError(path, tensor.status());
  *view = *tensor;
  return absl::OkStatus();
}

absl::Status ReadInput(const ApplyFlags& flags, bool npy, Input* input,
                       ApplyRopeArgs* args) {
  absl::StatusOr<FileBytes> bytes = FileBytes::Read(flags.in);
  if (!bytes.ok()) return bytes.status();
  input->bytes = *std::move(bytes);
  if (npy) {
    const absl::StatusOr<TensorView> tensor = ParseNpy(input->bytes.bytes());
    if (!tensor.ok()) return FileError(flags.in, tensor.status());
    (flags.as == "q" ? args->q : args->k) = *tensor;
    return absl::OkStatus();
  }
  absl::StatusOr<Safetensors> file = ParseSafetensors(input->bytes.bytes());
  if (!file.ok()) return FileError(flags.in, file.status());
  input->file = *std::move(file);
  absl::Status status =
      Choose(flags.in, flags.q, "q", &input->file, &input->q, &args->q);
  if (!status.ok()) return status;
  status = Choose(flags.in, flags.k, "k", &input->file, &input->k, &args->k);
  if (!status.ok()) return status;
  if (input->q == nullptr && input->k == nullptr) {
    return FileError(
        flags.in, absl::NotFoundError("holds neither q nor k; name them with "
                                      "--q and --k"));
  }
  if (input->q == input->k) {
    return UsageError("--q and --k name the same tensor");
  }
  return status;
}

absl::Status RunApply(const ApplyFlags& flags, const GlobalFlags& globals) {
  const bool npy = HasExtension(flags.in, ".npy");
  if (!npy && !HasExtension(flags.in, ".safetensors")) {
    return UsageError("--in: neither .npy nor .safetensors");
  }
  if (HasExtension(flags.out, ".npy") != npy ||
      HasExtension(flags.out, ".safetensors") == npy) {
    return UsageError("--out: the extension differs from that of --in");
  }
  if (npy && (!flags.q.empty() || !flags.k.empty())) {
    return UsageError("--q, --k: an .npy file has one tensor; use --as");
  }
  ApplyRopeArgs args;
  const absl::StatusOr<v1::Layout> layout =
      ParseEnum<v1::Layout>("--layout", "LAYOUT_", flags.layout);
  if (!layout.ok()) return layout.status();
  args.layout = *layout;
  const absl::StatusOr<v1::Direction> direction =
      ParseEnum<v1::Direction>("--direction", "DIRECTION_", flags.direction);
  if (!direction.ok()) return direction.status();
  args.direction = *direction;
  absl::StatusOr<v1::RopeSource> source = BuildSource(flags.source);
  if (!source.ok()) return source.status();
  args.rope = *std::move(source);
  absl::StatusOr<v1::Positions> positions = BuildPositions(flags.positions);
  if (!positions.ok()) return positions.status();
  args.positions = *std::move(positions);
  Input input;
  const absl::Status read = ReadInput(flags, npy, &input, &args);
  if (!read.ok()) return read;
  const absl::StatusOr<Session> session = Session::Open(globals);
  if (!session.ok()) return session.status();

  const double bytes = static_cast<double>((args.q ? args.q->bytes.size() : 0) +
                                           (args.k ? args.k->bytes.size() : 0));
  absl::StatusOr<ApplyRopeResult> result = absl::InternalError("not called");
  const auto begin = std::chrono::steady_clock::now();
  {
    const Progress progress(absl::StrCat("rotating ", BytesText(bytes)));
    result = session->client().ApplyRope(args);
  }
  const std::chrono::duration<double> elapsed =
      std::chrono::steady_clock::now() - begin;
  if (!result.ok()) return result.status();

  nlohmann::ordered_json tensors;
  for (const char* name : {"q", "k"}) {
    const auto& sent = *name == 'q' ? args.q : args.k;
    const auto& got = *name == 'q' ? result->q : result->k;
    if (!sent) continue;
    if (!got || got->bytes.size() != sent->bytes.size()) {
      return absl::InternalError(absl::StrCat("the server answered without ",
                                              name, " or with another size"));
    }
    tensors[name] = {{"dtype", DtypeName(sent->dtype)}, {"shape", sent->shape}};
  }
  absl::Status written;
  if (npy) {
    const TensorView& view = result->q ? *result->q : *result->k;
    written = WriteNpy(flags.out, view);
  } else {
    if (input.q != nullptr) input.q->bytes = result->q->bytes;
    if (input.k != nullptr) input.k->bytes = result->k->bytes;
    written = WriteSafetensors(flags.out, input.file);
  }
  if (!written.ok()) return written;
  const double rate = bytes / elapsed.count() / 1e9;
  if (globals.json) {
    PrintJson({{"out", flags.out},
               {"tensors", tensors},
               {"bytes", bytes},
               {"seconds", elapsed.count()},
               {"gigabytes_per_second", rate}});
  } else {
    std::fprintf(stderr,
                 "  rotated %s in %.1f ms: %.2f GB/s of tensor bytes, there "
                 "and back\n",
                 BytesText(bytes).c_str(), elapsed.count() * 1e3, rate);
  }
  return absl::OkStatus();
}

}  // namespace

Command AddApply(CLI::App* app, const GlobalFlags* globals) {
  const auto flags = std::make_shared<ApplyFlags>();
  AddSourceFlags(app, "", &flags->source);
  app->add_option("--in", flags->in, "A .safetensors or .npy file")
      ->type_name("FILE")
      ->required();
  app->add_option("--out", flags->out,
                  "File of the same format; other tensors and metadata pass "
                  "through")
      ->type_name("FILE")
      ->required();
  app->add_option("--q", flags->q, "Name of q in the file (default q)")
      ->type_name("NAME");
  app->add_option("--k", flags->k, "Name of k in the file (default k)")
      ->type_name("NAME");
  app->add_option("--as", flags->as, "What an .npy file holds: q or k")
      ->check(CLI::IsMember({"q", "k"}))
      ->capture_default_str();
  app->add_option("--layout", flags->layout, "bshd, bhsd, sbhd or thd")
      ->type_name("NAME")
      ->required();
  app->add_option("--direction", flags->direction,
                  "forward, inverse or adjoint")
      ->type_name("NAME")
      ->capture_default_str();
  PositionFlags& positions = flags->positions;
  app->add_option("--start", positions.start,
                  "Token t of every sequence stands at N + t")
      ->type_name("N");
  app->add_option("--starts", positions.starts, "One start per sequence: 0,-3")
      ->type_name("LIST");
  app->add_option("--ids", positions.ids, "One position per token: an .npy")
      ->type_name("FILE");
  app->add_option("--cu-seqlens", positions.cu_seqlens,
                  "Ends of packed sequences, with a 0 in front: 0,3,7")
      ->type_name("LIST");
  app->add_option("--packed-starts", positions.packed_starts,
                  "First position of each packed sequence")
      ->type_name("LIST");
  return [flags, globals] { return RunApply(*flags, *globals); };
}

}  // namespace posenc::cli
