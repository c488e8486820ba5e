// posencd, posenc and posenc-load in one file. Argument 0, the name by which
// the file is called, selects the program. If argument 0 is not a program's
// name, argument 1 selects the program, because emulators of other CPUs replace
// argument 0 by the file's own name. If argument 1 is not a program's name
// either, posencd runs. The programs are one file, because each of three files
// would have its own copy of gRPC, OpenSSL and protobuf.

#include <string_view>

// The main functions of the programs; CMake renames them.
int PosencMain(int argc, char** argv);
int PosencLoadMain(int argc, char** argv);
int PosencdMain(int argc, char** argv);

namespace {

using Main = int (*)(int argc, char** argv);

// Returns null if the path does not end with the name of a program.
Main Find(std::string_view path) {
  path.remove_prefix(path.rfind('/') + 1);
  if (path == "posencd") return &PosencdMain;
  if (path == "posenc") return &PosencMain;
  if (path == "posenc-load") return &PosencLoadMain;
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 0; i < argc && i < 2; ++i) {
    if (const Main program = Find(argv[i])) return program(argc - i, argv + i);
  }
  return PosencdMain(argc, argv);
}
