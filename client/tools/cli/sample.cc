// `posenc sample`: makes q and k for trials. Equal seeds give equal bytes on
// every machine.

#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/tools/arguments/enum_flags.h"
#include "client/tools/check/element.h"
#include "client/tools/check/random.h"
#include "client/tools/cli/commands.h"
#include "client/tools/files/print.h"
#include "client/tools/files/safetensors.h"
#include "client/tools/files/status.h"
#include "posenc/wire/frame.h"

namespace posenc::cli {
namespace {

// Upper bound on the size of a tensor, so that a typing mistake cannot fill the
// memory.
constexpr std::int64_t kMaxBytes = std::int64_t{8} << 30;

// Elements are nearly normal with mean 0 and variance 1. No tensor is made for
// an empty shape.
struct SampleFlags {
  std::string out;
  std::int64_t seed = 0;
  std::string q;
  std::string k;
  v1::Dtype dtype = v1::DTYPE_BFLOAT16;
};

absl::Status RunSample(const SampleFlags& flags, const GlobalFlags& globals) {
  const v1::Dtype dtype = flags.dtype;
  if (dtype == v1::DTYPE_INT8 || dtype == v1::DTYPE_INT32 ||
      dtype == v1::DTYPE_INT64) {
    return UsageError("--dtype: a floating point type is needed");
  }
  if (flags.q.empty() && flags.k.empty()) {
    return UsageError("one of --q and --k is required");
  }
  if (!HasExtension(flags.out, ".safetensors") &&
      !IsStandardStream(flags.out)) {
    return UsageError("--out: a .safetensors file is needed");
  }
  check::Random random(static_cast<std::uint64_t>(flags.seed));
  Safetensors file;
  std::vector<std::unique_ptr<char[]>> buffers;
  for (const char* name : {"q", "k"}) {
    const std::string& text = *name == 'q' ? flags.q : flags.k;
    if (text.empty()) continue;
    const std::string flag = absl::StrCat("--", name);
    ASSIGN_OR_RETURN(const auto shape, ParseIntegers(flag, text));
    const std::int64_t count = check::ElementCount(shape);
    const std::int64_t size =
        static_cast<std::int64_t>(wire::ElementBytes(dtype));
    if (count < 0 || count > kMaxBytes / size) {
      return UsageError(absl::StrCat(flag, ": ", check::ShapeText(shape),
                                     " is negative or more than ", kMaxBytes,
                                     " bytes"));
    }
    const std::size_t bytes = static_cast<std::size_t>(count * size);
    buffers.push_back(std::make_unique_for_overwrite<char[]>(bytes));
    for (std::int64_t i = 0; i < count; ++i) {
      check::SetElement(dtype, buffers.back().get(), i, random.Normal());
    }
    ASSIGN_OR_RETURN(
        file.entries.emplace_back(),
        InFile(
            flags.out,
            FromTensor(name, {dtype, shape, {buffers.back().get(), bytes}})));
  }
  file.metadata["posenc.seed"] = absl::StrCat(flags.seed);
  RETURN_IF_ERROR(WriteSafetensors(flags.out, file));
  nlohmann::ordered_json tensors;
  for (const SafetensorsEntry& entry : file.entries) {
    tensors[entry.name] = {{"dtype", check::DtypeName(dtype)},
                           {"shape", entry.shape}};
    if (!globals.json) {
      std::printf("  %s  %s %s, %s\n", entry.name.c_str(),
                  check::DtypeName(dtype).c_str(),
                  check::ShapeText(entry.shape).c_str(),
                  BytesText(static_cast<double>(entry.bytes.size())).c_str());
    }
  }
  if (globals.json) PrintJson({{"out", flags.out}, {"tensors", tensors}});
  return absl::OkStatus();
}

}  // namespace

Command AddSample(CLI::App* app, const GlobalFlags* globals) {
  const auto flags = std::make_shared<SampleFlags>();
  AddFlag(app, "--out", &flags->out, "FILE", "A .safetensors file to write",
          {.required = true});
  AddFlag(app, "--seed", &flags->seed, "N", "Equal seeds give equal bytes",
          {.show_default = true, .range = {{0, INT64_MAX}}});
  AddFlag(app, "--q", &flags->q, "SHAPE", "Shape of q: 1,4096,32,128");
  AddFlag(app, "--k", &flags->k, "SHAPE", "Shape of k: 1,4096,8,128");
  AddEnumFlag(app, "--dtype", &flags->dtype,
              "float32, float16, bfloat16, float64, float8_e4m3fn, "
              "float8_e5m2");
  return [flags, globals] { return RunSample(*flags, *globals); };
}

}  // namespace posenc::cli
