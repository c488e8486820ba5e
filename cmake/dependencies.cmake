# Finds the libraries that posenc is built with. What is missing ends the
# configuration with one line, which names Debian's package.

function(posenc_missing what debian)
  message(FATAL_ERROR "posenc needs ${what}; on Debian: apt-get install ${debian}")
endfunction()

# A library's own CMake files come first, and CMake's module only without them:
# protobuf's, found after the module, would define the same targets again.
macro(posenc_find package debian)
  find_package(${package} CONFIG QUIET)
  if(NOT ${package}_FOUND)
    find_package(${package} QUIET)
  endif()
  if(NOT ${package}_FOUND)
    posenc_missing("${package}" "${debian}")
  endif()
endmacro()

macro(posenc_find_by_pkg_config name module debian)
  pkg_check_modules(${name} QUIET IMPORTED_TARGET ${module})
  if(NOT ${name}_FOUND)
    posenc_missing("${module}" "${debian}")
  endif()
endmacro()

macro(posenc_find_grpc)
  find_package(gRPC CONFIG QUIET)
  if(NOT gRPC_FOUND)
    posenc_missing("gRPC 1.51 or later, with its CMake files"
                   "libgrpc++-dev protobuf-compiler-grpc")
  endif()
  if(gRPC_VERSION VERSION_LESS 1.51)
    message(FATAL_ERROR "posenc needs gRPC 1.51 or later; this is ${gRPC_VERSION}")
  endif()
endmacro()
