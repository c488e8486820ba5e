// What posencd was told to do, whoever told it: see keys.h for the names under
// which these fields are set.

#pragma once

#include <string>
#include <vector>

#include "server/kserve/kserve_service.h"
#include "server/probe.h"
#include "server/server.h"

namespace posenc::server {

// Texts that have few values ("info") are kept as given; the table of keys
// refuses all others.
struct LogOptions {
  std::string level = "info";
  std::string format = "json";
  // Fraction of the calls that succeeded to be logged.
  double calls = 0;
};

struct Config {
  Config() { server.listen = {"127.0.0.1:50051"}; }

  // The file that was read; empty: none.
  std::string file;

  ServerOptions server;
  // Whether KServe's protocol is spoken too (inference.GRPCInferenceService).
  bool kserve = KserveService().has_value();
  LogOptions log;

  // "host:port" or "unix:/path" of the admin server; empty: none.
  std::string admin;
  // Names by which it may be asked, beside its address and localhost.
  std::vector<std::string> admin_hosts;
  // Where traces go; empty: nowhere.
  std::string otlp_endpoint;

  std::string ready_file;
  // Not empty: asks the server there for its health instead of serving.
  std::string probe;
  std::string probe_service = "posenc.readiness";
  ProbeTls probe_tls;
};

}  // namespace posenc::server
