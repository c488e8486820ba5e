// Rotates q.bin and k.bin of the working folder with the code of a README.

#include <fstream>
#include <iostream>
#include <vector>

#include "posenc/client.h"

namespace {

std::vector<float> Read(const char* path, std::size_t elements) {
  std::vector<float> out(elements);
  std::ifstream(path, std::ios::binary)
      .read(reinterpret_cast<char*>(out.data()),
            static_cast<std::streamsize>(elements * sizeof(float)));
  return out;
}

void Write(const char* path, const std::vector<float>& elements) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(elements.data()),
             static_cast<std::streamsize>(elements.size() * sizeof(float)));
}

}  // namespace

int main() {
  std::vector<float> q = Read("q.bin", 16 * 4 * 64);
  std::vector<float> k = Read("k.bin", 16 * 2 * 64);
#include LINES
  if (!done.ok()) {
    std::cerr << done.status() << "\n";
    return 1;
  }
  Write("q.out", q);
  Write("k.out", k);
  return 0;
}
