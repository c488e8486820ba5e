// posenc-offer: offers a server more load than it can serve, so cheaply that
// one core can offer ten times what another core serves (posenc-load cannot,
// because of gRPC's client). Prints one line of JSON.

#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/tools/load/units.h"
#include "client/tools/load/workload.h"
#include "nlohmann/json.hpp"
#include "tests/chaos/offer/frame.h"
#include "tests/chaos/offer/offer.h"

namespace posenc::offer {
namespace {

struct Flags {
  Options options;
  std::string rpc = "ApplyRope";
  std::string size = "64KiB";
  double deadline_ms = 1000;
  double cancel_ms = 0;
  bool no_announce = false;
  std::vector<std::string> headers;
  std::string path, message;
  std::string write;
};

int Fail(const absl::Status& status, int exit_code) {
  std::fprintf(stderr, "posenc-offer: %s\n",
               std::string(status.message()).c_str());
  return exit_code;
}

std::string Framed(const std::string& message) {
  return absl::StrCat(std::string(1, '\0'),
                      U32(static_cast<std::uint32_t>(message.size())), message);
}

absl::Status Wrong(absl::string_view flag, const absl::Status& fact) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", fact.message()));
}

// Returns the request that --path and --message describe, or else the request
// of an RPC that posenc-load knows.
absl::StatusOr<Request> MakeMessage(const Flags& flags) {
  Request request;
  if (!flags.path.empty()) {
    std::string body;
    if (!flags.message.empty()) {
      std::ifstream file(flags.message, std::ios::binary);
      if (!file) return absl::NotFoundError("--message: cannot be read");
      body.assign(std::istreambuf_iterator<char>(file), {});
    }
    request.path = flags.path;
    request.message = Framed(body);
    return request;
  }
  load::WorkloadOptions workload;
  auto mix = load::ParseMix(flags.rpc);
  if (!mix.ok()) return Wrong("--rpc", mix.status());
  workload.mix = *std::move(mix);
  const auto size = load::ParseBytes(flags.size);
  if (!size.ok()) return Wrong("--size", size.status());
  workload.sizes = {*size};
  const auto cases = load::BuildWorkload(workload);
  if (!cases.ok()) return cases.status();
  request.path = (*cases)[0].method;
  request.message = Framed(load::BytesOf((*cases)[0].requests[0].message));
  return request;
}

absl::StatusOr<Request> MakeRequest(const Flags& flags) {
  auto message = MakeMessage(flags);
  if (!message.ok()) return message.status();
  Request request = *std::move(message);
  request.announce = !flags.no_announce;
  for (const std::string& header : flags.headers) {
    const std::vector<std::string> parts =
        absl::StrSplit(header, absl::MaxSplits('=', 1));
    if (parts.size() != 2) {
      return Wrong("--header", load::InvalidText(header, "NAME=VALUE"));
    }
    request.headers.emplace_back(parts[0], parts[1]);
  }
  return request;
}

nlohmann::ordered_json Millis(const load::Histogram& histogram, double p) {
  if (histogram.count() == 0) return nullptr;
  const std::int64_t micros = histogram.Percentile(p) / 1000;
  return static_cast<double>(micros) / 1e3;
}

nlohmann::ordered_json Report(const Options& options, const Outcomes& seen) {
  nlohmann::ordered_json codes = nlohmann::ordered_json::object();
  for (const auto& [code, count] : seen.codes) {
    codes[std::to_string(code)] = count;
  }
  return {{"rate", options.rate},
          {"due", seen.due},
          {"good", seen.good},
          {"good_per_second", static_cast<double>(seen.good) / options.seconds},
          {"late", seen.late},
          {"refused", seen.refused},
          {"expired", seen.expired},
          {"dropped", seen.dropped},
          {"cancelled", seen.cancelled},
          {"lost", seen.lost},
          {"other", seen.other},
          {"retried", seen.retried},
          {"codes", codes},
          {"good_p50_ms", Millis(seen.good_latency, 50)},
          {"good_p99_ms", Millis(seen.good_latency, 99)},
          {"refused_p50_ms", Millis(seen.refused_latency, 50)},
          {"refused_p99_ms", Millis(seen.refused_latency, 99)},
          {"send_delay_p99_ms", Millis(seen.send_delay, 99)},
          {"cpu", seen.cpu_share},
          {"bytes_out", seen.bytes_out},
          {"bytes_in", seen.bytes_in}};
}

void AddFlags(CLI::App* app, Flags* flags) {
  Options& options = flags->options;
  app->add_option("--server", options.server, "unix:/path or 127.0.0.1:port");
  app->add_option("--rpc", flags->rpc, "ApplyRope, BuildTable, ResolveRope...");
  app->add_option("--size", flags->size, "Bytes of the tensor");
  app->add_option("--path", flags->path,
                  "Another method: /package.Service/Method; with --message");
  app->add_option("--message", flags->message,
                  "File with the request of --path; by default it is empty");
  app->add_option("--rate", options.rate, "Calls due per second")
      ->check(CLI::Range(0.001, 1e7));
  app->add_option("--seconds", options.seconds,
                  "Measured time, after the warm-up")
      ->check(CLI::Range(0.01, 1e5));
  app->add_option("--warm-up", options.warm_up, "Seconds that do not count")
      ->check(CLI::Range(0.0, 1e5));
  app->add_option("--deadline-ms", flags->deadline_ms,
                  "Deadline of a call, counted from when it is due")
      ->check(CLI::Range(0.1, 9e4));
  app->add_option("--connections", options.connections, "")
      ->check(CLI::Range(1, 10000));
  app->add_option("--retries", options.retries,
                  "How often a refused call is tried again")
      ->check(CLI::Range(0, 10));
  app->add_option("--cancel-ms", flags->cancel_ms,
                  "Give up each call this long after it was sent")
      ->check(CLI::Range(0.0, 9e4));
  app->add_flag("--no-announce", flags->no_announce,
                "Do not announce the size of the message");
  app->add_option("--header", flags->headers, "NAME=VALUE, may be repeated");
  app->add_option("--seed", options.seed, "");
  app->add_option("--write", flags->write,
                  "Write the request's message to this file instead");
}

int Main(int argc, char** argv) {
  CLI::App app("Offers a posenc server more load than it can serve.",
               "posenc-offer");
  Flags flags;
  AddFlags(&app, &flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return Fail(absl::InvalidArgumentError(error.what()), 2);
  }
  const auto request = MakeRequest(flags);
  if (!request.ok()) return Fail(request.status(), 2);
  if (!flags.write.empty()) {
    std::ofstream file(flags.write, std::ios::binary | std::ios::trunc);
    file << request->message.substr(5);
    file.close();
    return file ? 0 : Fail(absl::UnknownError("--write: failed"), 1);
  }
  flags.options.deadline_nanos =
      static_cast<std::int64_t>(flags.deadline_ms * 1e6);
  flags.options.cancel_nanos = static_cast<std::int64_t>(flags.cancel_ms * 1e6);
  Offer offer(flags.options, &*request);
  const absl::Status status = offer.Run();
  if (!status.ok()) return Fail(status, 1);
  std::printf("%s\n", Report(flags.options, offer.outcomes()).dump().c_str());
  return 0;
}

}  // namespace
}  // namespace posenc::offer

int main(int argc, char** argv) {
  try {
    return posenc::offer::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "posenc-offer: %s\n", error.what());
    return 1;
  }
}
