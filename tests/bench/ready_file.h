// Each server of the benchmark writes its addresses to a file once it listens,
// one per line. Readers see the whole file or none.

#pragma once

#include <cstdio>
#include <initializer_list>
#include <string>

namespace posenc {

inline bool WriteReadyFile(const std::string& path,
                           std::initializer_list<std::string> addresses) {
  const std::string temporary = path + ".new";
  std::FILE* const file = std::fopen(temporary.c_str(), "we");
  if (file == nullptr) return false;
  for (const std::string& address : addresses) {
    std::fprintf(file, "%s\n", address.c_str());
  }
  return std::fclose(file) == 0 &&
         std::rename(temporary.c_str(), path.c_str()) == 0;
}

}  // namespace posenc
