# Finds the libraries that posenc is built with. What is missing ends the
# configuration with one line, which names Debian's package.

function(posenc_missing what debian)
  message(FATAL_ERROR "posenc needs ${what}; on Debian: apt-get install ${debian}")
endfunction()

# posenc_find(PACKAGE DEBIAN [LEAST]): in the version LEAST or later. A library's own
# CMake files come first, and CMake's module only without them: protobuf's, found
# after the module, would define the same targets again.
macro(posenc_find package debian)
  find_package(${package} CONFIG QUIET)
  if(NOT ${package}_FOUND)
    find_package(${package} QUIET)
  endif()
  if(NOT ${package}_FOUND)
    posenc_missing("${package}" "${debian}")
  endif()
  if(${ARGC} GREATER 2 AND "${${package}_VERSION}" VERSION_LESS "${ARGN}")
    posenc_missing("${package} ${ARGN} or later (this is '${${package}_VERSION}')"
                   "${debian}")
  endif()
endmacro()

macro(posenc_find_by_pkg_config name module debian)
  pkg_check_modules(${name} QUIET IMPORTED_TARGET ${module})
  if(NOT ${name}_FOUND)
    posenc_missing("${module}" "${debian}")
  endif()
endmacro()

# The compilers of messages and of services come first: without them the libraries'
# CMake files end with errors of their own, or name programs that are not there.
macro(posenc_find_grpc)
  find_program(POSENC_PROTOC protoc)
  if(NOT POSENC_PROTOC)
    posenc_missing("protoc" "protobuf-compiler")
  endif()
  find_program(POSENC_GRPC_CPP_PLUGIN grpc_cpp_plugin)
  if(NOT POSENC_GRPC_CPP_PLUGIN)
    posenc_missing("grpc_cpp_plugin" "protobuf-compiler-grpc")
  endif()
  posenc_find(Protobuf "libprotobuf-dev protobuf-compiler" 3.21)
  posenc_find(gRPC "libgrpc++-dev protobuf-compiler-grpc" 1.51)
  find_path(POSENC_GRPCPP grpcpp/grpcpp.h)
  if(NOT POSENC_GRPCPP)
    posenc_missing("gRPC's C++ headers" "libgrpc++-dev")
  endif()
endmacro()

# What the sources use of C++20, tried: some compilers know the option and not all
# of the language or its library.
function(posenc_check_compiler)
  include(CheckCXXSourceCompiles)
  set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
  set(CMAKE_CXX_STANDARD 20)
  check_cxx_source_compiles(
    "#include <bit>
     #include <coroutine>
     #include <span>
     template <typename T> concept Wide = sizeof(T) > 4;
     static_assert(Wide<double> && std::bit_cast<int>(1.0f) != 0);
     std::coroutine_handle<> coroutine;"
    POSENC_HAS_CXX20)
  if(NOT POSENC_HAS_CXX20)
    posenc_missing("a compiler with C++20, such as g++ 12 (this is \
${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION})" "g++")
  endif()
endfunction()
