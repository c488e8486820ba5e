// posenc: positional encodings from the command line. This file lists the
// commands and turns their results into output and an exit code; each command
// has its own file.

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "client/tools/cli/commands.h"
#include "client/tools/files/misspelt.h"
#include "client/tools/files/print.h"
#include "client/tools/files/status.h"
#include "client/tools/flags/command_line.h"
#include "server/base/version.h"

namespace posenc::cli {
namespace {

constexpr char kFooter[] =
    "\nExit codes: 0 ok; 1 the call failed, or `check` or `doctor` found an "
    "error; 2 wrong usage;\n3 a file cannot be read, written or parsed.";

// Returns true for "-", and for "-:NAME", which is a tensor of standard input.
bool NamesStream(const std::string& value) {
  return value == "-" || absl::StartsWith(value, "-:");
}

// Prepares pipes: flags that name a file may have the value "-". The flag that
// begins with --out writes; all other flags read. Standard input can be read
// only once. If a file goes to standard output, all messages of the command go
// to standard error. Returns an error with exit code 2 that names the flags if
// several of them read "-", or if a tensor would be written to a terminal.
absl::Status PrepareStandardStreams(const CLI::App& command) {
  std::vector<std::string> reading;
  std::string writing;
  for (const CLI::Option* const option : command.get_options()) {
    if (option->get_type_name() != "FILE") continue;
    const std::string name = option->get_name();
    for (const std::string& value : option->results()) {
      if (!NamesStream(value)) continue;
      if (absl::StartsWith(name, "--out")) {
        writing = name;
      } else {
        reading.push_back(name);
      }
    }
  }
  if (reading.size() > 1) {
    return UsageError(absl::StrCat(absl::StrJoin(reading, ", "),
                                   ": several are '-'; standard input can be "
                                   "read once"));
  }
  if (writing.empty()) return absl::OkStatus();
  if (isatty(STDOUT_FILENO)) {
    return UsageError(absl::StrCat(writing,
                                   ": standard output is a terminal; redirect "
                                   "it, or name a file"));
  }
  // From here on, messages go to stderr. The file is still written to standard
  // output, through its file descriptor. glibc allows programs to set the
  // variable stdout.
  stdout = stderr;
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  CLI::App app("Positional encodings: inspect, build tables, rotate tensors.",
               "posenc");
  app.footer(kFooter);
  flags::FormatHelp(&app);
  app.set_version_flag("--version", server::kVersion);
  app.require_subcommand(1);
  app.fallthrough();  // global flags may follow the command
  GlobalFlags globals;
  AddGlobalFlags(&app, &globals);

  std::vector<std::pair<CLI::App*, Command>> commands;
  const auto add = [&](const char* name, const char* description,
                       const char* example, AddCommand* add_flags) {
    CLI::App* const command = app.add_subcommand(name, description);
    command->footer(std::string("\nExample:\n  posenc ") + example + "\n" +
                    kFooter);
    commands.emplace_back(command, add_flags(command, &globals));
  };
  add("info", "Describe the server", "info --server 127.0.0.1:50051", AddInfo);
  add("resolve", "Frequencies, amplitude and assumptions of an encoding",
      "resolve --config config.json --compare-profile vllm", AddResolve);
  add("analyze", "Wavelengths, decay and similarity by distance",
      "analyze --preset llama-3.1-8b --max-distance 8192", AddAnalyze);
  add("plot", "Draw an encoding: curves, tables, rotations, readers",
      "plot kept --preset gpt-oss-20b --output kept.svg", AddPlot);
  add("positions", "Position ids of packed, padded, split or mixed batches",
      "positions --multimodal text:5,image:1x4x4/2,text:3 --out ids.npy",
      AddPositions);
  add("table", "Cosines and sines, or rows of an absolute encoding",
      "table --sinusoidal 512 --order interleaved --rows 1024 --out pe.npy",
      AddTable);
  add("apply", "Rotate q and k",
      "apply --preset llama-3.1-8b --in qk.safetensors --layout bshd "
      "--start 0 \\\n      --out rotated.safetensors",
      AddApply);
  add("reposition", "Move rotated keys to other positions or encodings",
      "reposition --preset llama-3.1-8b --in cache.safetensors "
      "--layout bshd \\\n      --shift -1024 --out moved.safetensors",
      AddReposition);
  add("add", "Add an absolute encoding to embeddings",
      "add --sinusoidal 512 --order interleaved --start 0 --in x.npy "
      "--out y.npy",
      AddAdd);
  add("bias", "An attention bias, or indices of relative positions",
      "bias --alibi 8 --query-length 4096 --causal --out bias.npy", AddBias);
  add("scores", "Attention scores of Shaw, Transformer-XL and DeBERTa",
      "scores --in qk.safetensors --shaw table.npy --out scores.npy",
      AddScores);
  add("convert", "Reorder projection weights for another pairing",
      "convert --old-pairing interleaved --new-pairing half_split \\\n      "
      "--heads 32 --kv-heads 8 --in model.safetensors "
      "--out converted.safetensors",
      AddConvert);
  add("sample", "Make q and k from a seed, for trials",
      "sample --out qk.safetensors --seed 7 --q 1,4096,32,128 "
      "--k 1,4096,8,128",
      AddSample);
  add("check", "Check a rotation against an independent long double one",
      "check --preset llama-3.1-8b --before qk.safetensors "
      "--after rotated.safetensors \\\n      --layout bshd",
      AddCheck);
  add("doctor", "Find where a checkpoint's files and their readers differ",
      "doctor models/llama --reader mlx --fail-on warning", AddDoctor);

  add("explore", "A page in the browser: encodings, readers, doctor's findings",
      "explore --port 8080", AddExplore);

  const auto refuse = [&](absl::string_view fact) {
    // Searches --json here, because the parser may have stopped before it, and
    // --json also applies to errors.
    bool json = false;
    for (int i = 1; i < argc; ++i) json |= !std::strcmp(argv[i], "--json");
    PrintError(UsageError(fact), json);
    return kExitUsage;
  };
  const absl::Status checked = flags::CheckArguments(argc, argv);
  if (!checked.ok()) return refuse(checked.message());
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    const bool is_known =
        app.remaining().empty() || !app.get_subcommands().empty();
    return is_known ? app.exit(help) : refuse(FindMisspelt(app));
  } catch (const CLI::Success& success) {  // --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    const std::string misspelt = FindMisspelt(app);
    return refuse(misspelt.empty() ? error.what() : misspelt);
  }
  for (const auto& [command, run] : commands) {
    if (!command->parsed()) continue;
    absl::Status status = PrepareStandardStreams(*command);
    if (status.ok()) status = run();
    if (!status.ok() && !IsPrinted(status)) {
      std::string flag;
      if (absl::IsUnauthenticated(status)) {
        flag = "--token-file";
      } else if (ExitCode(status) == kExitFailed) {
        flag = FlagOfField(*command, ErrorFact(status, "field"));
      }
      PrintError(status, globals.json, flag);
    }
    return ExitCode(status);
  }
  return kExitUsage;
}

// Returns the exit code of the program. If output could not be written, for
// example to a full disk, the command has failed.
int Finish(int code) {
  const bool failed = std::ferror(stdout) != 0;
  if (std::fflush(stdout) == 0 && !failed) return code;
  std::fputs("posenc: standard output: cannot write\n", stderr);
  return code == kExitOk ? kExitFile : code;
}

}  // namespace
}  // namespace posenc::cli

// Catches exceptions, because libraries may throw, for example if memory is
// exhausted.
int main(int argc, char** argv) {
  posenc::flags::SilenceGrpc();
  try {
    return posenc::cli::Finish(posenc::cli::Main(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "posenc: %s\n", error.what());
  } catch (...) {
    std::fputs("posenc: unknown exception\n", stderr);
  }
  return posenc::cli::kExitFailed;
}
