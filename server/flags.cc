#include "server/flags.h"

#include <cstdint>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "server/version.h"

namespace posenc::server {
namespace {

constexpr int kUsage = 2;

// Parses "64MiB" or "1024". False for anything else, and for sizes that int64
// cannot hold.
bool ParseBytes(absl::string_view text, std::int64_t* bytes) {
  int shift = 0;
  if (absl::ConsumeSuffix(&text, "KiB")) {
    shift = 10;
  } else if (absl::ConsumeSuffix(&text, "MiB")) {
    shift = 20;
  } else if (absl::ConsumeSuffix(&text, "GiB")) {
    shift = 30;
  }
  std::int64_t count = 0;
  if (!absl::SimpleAtoi(text, &count) || count < 0 ||
      count > (INT64_MAX >> shift)) {
    return false;
  }
  *bytes = count << shift;
  return true;
}

CLI::Option* AddBytes(CLI::App* app, const char* name, std::int64_t* bytes,
                      const char* shown, const char* description) {
  return app
      ->add_option_function<std::string>(
          name,
          [name, bytes](const std::string& text) {
            if (ParseBytes(text, bytes)) return;
            throw CLI::ValidationError(
                name, absl::StrCat("'", text,
                                   "' is not a size; expected bytes or KiB, "
                                   "MiB, GiB as in 64MiB"));
          },
          description)
      ->default_str(shown);
}

CLI::Option* AddDuration(CLI::App* app, const char* name,
                         absl::Duration* duration, const char* description) {
  return app
      ->add_option_function<std::string>(
          name,
          [name, duration](const std::string& text) {
            if (absl::ParseDuration(text, duration) &&
                *duration >= absl::ZeroDuration() &&
                *duration < absl::InfiniteDuration()) {
              return;
            }
            throw CLI::ValidationError(
                name, absl::StrCat("'", text,
                                   "' is not a duration; expected a number "
                                   "with ms, s or m as in 30s"));
          },
          description)
      ->default_str(absl::FormatDuration(*duration));
}

void AddAll(CLI::App* app, Flags* flags) {
  ServerOptions& options = flags->options;
  app->add_option("--listen", options.listen,
                  "host:port (port 0: any free one), [ipv6]:port or "
                  "unix:/path; may be repeated")
      ->capture_default_str();
  app->add_flag("--allow-insecure", options.allow_insecure,
                "serve plaintext on other addresses than loopback");
  AddBytes(app, "--max-request-bytes", &options.limits.max_request_bytes,
           "512MiB", "largest request");
  AddBytes(app, "--max-response-bytes", &options.limits.max_response_bytes,
           "512MiB", "largest response");
  AddBytes(app, "--in-flight-bytes", &options.limits.in_flight_bytes,
           "half of the memory",
           "messages in flight at any time; calls wait for room before they "
           "are read");
  app->add_option("--max-waiting", options.limits.max_waiting,
                  "calls that may wait for room; more are refused")
      ->capture_default_str();
  AddDuration(app, "--default-deadline", &options.limits.default_deadline,
              "of a call whose client sets none");
  app->add_option("--threads", options.limits.threads,
                  "for computations (default: as many as there are cores)");
  AddDuration(app, "--max-connection-age", &options.max_connection_age,
              "after it a client is told to connect anew, and so to look the "
              "name up again; 0s: never");
  AddDuration(app, "--max-connection-age-grace",
              &options.max_connection_age_grace,
              "how long calls may take to finish after that");
  AddDuration(app, "--lame-duck", &options.lame_duck,
              "how long calls are still taken after SIGTERM or SIGINT, while "
              "readiness is off already");
  AddDuration(app, "--drain-timeout", &options.drain_timeout,
              "how long calls may take to finish after that");
  app->add_option("--admin", flags->admin.address,
                  "host:port or unix:/path of metrics, health and channelz "
                  "over HTTP");
  app->add_option("--admin-host", flags->admin.hosts,
                  "name by which the admin port may be asked, beside that of "
                  "--admin, localhost and IP addresses; may be repeated");
  app->add_option("--ready-file", flags->ready_file,
                  "written once serving: one bound address a line");
  app->add_option("--probe", flags->probe,
                  "asks the server at this address for its health instead: "
                  "exit code 0 where it serves, else 1");
  app->add_option("--probe-service", flags->probe_service,
                  "posenc.readiness, posenc.liveness or a service")
      ->capture_default_str();
}

}  // namespace

std::optional<Flags> ParseFlags(int argc, char** argv, int* exit_code,
                                std::string* error) {
  Flags flags;
  flags.options.listen = {"127.0.0.1:50051"};
  flags.probe_service = "posenc.readiness";
  CLI::App app("Positional encodings over gRPC", "posencd");
  app.set_version_flag("--version", absl::StrCat("posencd ", kVersion));
  AddAll(&app, &flags);
  for (CLI::Option* const option : app.get_options([](const CLI::Option* any) {
         return any->get_single_name() != "help" &&
                any->get_single_name() != "version";
       })) {
    option->envname(absl::StrCat(
        "POSENC_",
        absl::StrReplaceAll(absl::AsciiStrToUpper(option->get_single_name()),
                            {{"-", "_"}})));
  }
  try {
    app.parse(argc, argv);
    return flags;
  } catch (const CLI::Success& asked) {
    *exit_code = app.exit(asked);
  } catch (const CLI::ParseError& mistake) {
    *exit_code = kUsage;
    *error = absl::StrCat(mistake.what(), "; see --help");
  }
  return std::nullopt;
}

}  // namespace posenc::server
