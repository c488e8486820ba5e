// posencd, posenc and posenc-load in one file; the name by which the file is
// called selects the program. Three files would have three copies of gRPC,
// OpenSSL and protobuf.

#include <cstdio>
#include <string_view>

// The main functions of the programs; CMake renames them.
int PosencMain(int argc, char** argv);
int PosencLoadMain(int argc, char** argv);
int PosencdMain(int argc, char** argv);

int main(int argc, char** argv) {
  std::string_view name = argc > 0 ? argv[0] : "";
  name.remove_prefix(name.rfind('/') + 1);
  if (name == "posencd") return PosencdMain(argc, argv);
  if (name == "posenc") return PosencMain(argc, argv);
  if (name == "posenc-load") return PosencLoadMain(argc, argv);
  std::fprintf(stderr, "must be called as posencd, posenc or posenc-load\n");
  return 2;
}
