# Finds the libraries of posenc. A missing library ends the configuration with a
# line that names Debian's package.

function(posenc_missing what debian)
  message(FATAL_ERROR "posenc needs ${what}; on Debian: apt-get install ${debian}")
endfunction()

# posenc_find(PACKAGE DEBIAN [LEAST]): finds version LEAST or later. Looks for the
# library's own CMake files before CMake's module. In the other order, protobuf's own
# files would define the module's targets again.
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

# Links libraries statically, so that programs need only glibc's shared libraries. Must
# be called before libraries are found, so that CMake searches file names that end in
# .a.
macro(posenc_prefer_static)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
  set(OPENSSL_USE_STATIC_LIBS ON)
  set(Protobuf_USE_STATIC_LIBS ON)
  add_link_options(-static-libstdc++ -static-libgcc -Wl,--gc-sections
                   -Wl,-z,relro,-z,now)
endmacro()

# Debian's CMake files of gRPC and abseil name shared libraries; the static
# libraries are in the same folder. The targets already link what a static library
# needs.
function(posenc_replace_shared)
  get_property(targets DIRECTORY PROPERTY IMPORTED_TARGETS)
  foreach(target ${targets})
    get_target_property(shared ${target} IMPORTED_LOCATION_NONE)
    if(shared MATCHES "^(.*)\\.so[.0-9]*$")
      set_property(TARGET ${target} PROPERTY IMPORTED_LOCATION_NONE
                                             ${CMAKE_MATCH_1}.a)
    endif()
  endforeach()
  # gRPC's CMake files name re2 as -lre2, which is the shared library.
  find_library(POSENC_RE2 re2)
  set_property(TARGET re2::re2 PROPERTY INTERFACE_LINK_LIBRARIES ${POSENC_RE2})
endfunction()

# Finds protoc and its plugin for services before the libraries. Without these programs
# the libraries' CMake files fail with unclear errors, or name missing programs.
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
  # The CMake files of newer versions of gRPC leave this target out in a cross build.
  if(NOT TARGET gRPC::grpc_cpp_plugin)
    add_executable(gRPC::grpc_cpp_plugin IMPORTED GLOBAL)
    set_target_properties(gRPC::grpc_cpp_plugin
                          PROPERTIES IMPORTED_LOCATION ${POSENC_GRPC_CPP_PLUGIN})
  endif()
  find_path(POSENC_GRPCPP grpcpp/grpcpp.h)
  if(NOT POSENC_GRPCPP)
    posenc_missing("gRPC's C++ headers" "libgrpc++-dev")
  endif()
endmacro()

# Checks that the compiler has the parts of C++20 that the sources use. Some compilers
# accept the option for C++20, but lack a part of the language or its library.
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
