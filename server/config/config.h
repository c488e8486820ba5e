// The configuration of posencd, from all sources: keys.h has the names under
// which these fields are set.

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

  // Configuration file that was read; empty: none.
  std::string file;

  ServerOptions server;
  // Whether the server has KServe's service (inference.GRPCInferenceService).
  bool kserve = KserveService().make != nullptr;
  LogOptions log;

  // "host:port" or "unix:/path" of the admin server; empty: none.
  std::string admin;
  // Further host names that requests to the admin server may use
  // (AdminOptions::hosts).
  std::vector<std::string> admin_hosts;
  // Collector that gets the traces; empty: no traces.
  std::string otlp_endpoint;

  std::string ready_file;
  bool exit_with_stdin = false;
  // Address of a server. If it is not empty, posencd asks this server for its
  // health instead of serving.
  std::string probe;
  std::string probe_service = "posenc.readiness";
  ProbeTls probe_tls;
};

}  // namespace posenc::server
