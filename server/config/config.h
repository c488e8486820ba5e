// The configuration of posencd, combined from all sources. keys.h has the names
// of the keys that set these fields.

#pragma once

#include <string>
#include <vector>

#include "server/adapters/kserve/kserve_service.h"
#include "server/health/probe.h"
#include "server/service/server.h"

namespace posenc::server {

// `level` and `format` are words of the configuration, such as "info". SetKey()
// (keys.h) has refused words that are not allowed.
struct LogOptions {
  std::string level = "info";
  std::string format = "json";
  // Fraction of the successful calls that are logged.
  double calls = 0;
};

struct Config {
  Config() { server.listen = {"127.0.0.1:50051"}; }

  // Path of the configuration file; empty if there is none.
  std::string file;

  ServerOptions server;
  // True if the server has KServe's service (inference.GRPCInferenceService).
  bool kserve = KserveService().make != nullptr;
  LogOptions log;

  // "host:port" or "unix:/path" of the admin server; empty if there is none.
  std::string admin;
  // Further host names that requests to the admin server may use
  // (AdminOptions::hosts).
  std::vector<std::string> admin_hosts;
  // Address of the collector that gets the traces; empty if there is none.
  std::string otlp_endpoint;

  std::string ready_file;
  bool exit_with_stdin = false;
  // If this is not empty, posencd asks the server at this address for its
  // health, and does not serve.
  std::string probe;
  std::string probe_service = "posenc.readiness";
  ProbeTls probe_tls;
};

}  // namespace posenc::server
