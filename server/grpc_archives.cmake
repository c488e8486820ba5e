# gRPC within a program, from the archives that its packages hold beside the
# shared libraries (docs/adr/0009-grpc-archives.md).

# Not with OpenTelemetry, whose library brings gRPC's shared one into the
# process, and not under sanitizers (CMakePresets.json).
option(POSENC_GRPC_ARCHIVES "Link posencd with gRPC's archives" ON)
if(POSENC_OTLP)
  set(POSENC_GRPC_ARCHIVES OFF)
endif()

# CMake knows gRPC's libraries by their shared form. The command that links
# `target` is given the archives instead.
function(posenc_link_archives target)
  set(script ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/link_archives.sh)
  get_target_property(library gRPC::grpc LOCATION)
  string(REGEX REPLACE "\\.so.*" ".a" archive ${library})
  set_target_properties(${target} PROPERTIES RULE_LAUNCH_LINK ${script}
                                             LINK_DEPENDS "${script};${archive}")
endfunction()

# gRPC's calls of five functions go to grpc_shortcuts.cc, grpc_read_slices.cc and
# grpc_writes.cc.
# They are found by their types: what a linker names them may hold a name that
# abseil's packager chose.
function(posenc_shorten_grpc target)
  if(NOT gRPC_VERSION MATCHES "^1\\.51\\.")
    message(FATAL_ERROR "grpc_read_slices.cc was written for gRPC 1.51, and this "
                        "is ${gRPC_VERSION}: see "
                        "docs/adr/0008-functions-of-grpc.md, or set "
                        "POSENC_GRPC_ARCHIVES=OFF")
  endif()
  get_target_property(archive gRPC::grpc LOCATION)
  string(REGEX REPLACE "\\.so.*" ".a" archive ${archive})
  execute_process(
    COMMAND ${CMAKE_NM} --defined-only --extern-only ${archive}
    OUTPUT_VARIABLE symbols
    ERROR_QUIET)
  set(absl "N4absl[0-9]+[a-z0-9_]+")
  set(POSENC_STATUS_CREATE
      "_ZN9grpc_core12StatusCreateE${absl}10StatusCodeENS1_11string_viewERKNS_13DebugLocationESt6vectorINS1_6StatusESaIS8_EE"
  )
  set(POSENC_STATUS_TO_STRING
      "_ZN9grpc_core14StatusToStringB5cxx11ERK${absl}6StatusE")
  set(POSENC_MAKE_SLICE
      "_ZN17grpc_event_engine12experimental15MemoryAllocator9MakeSliceENS0_13MemoryRequestE"
  )
  set(POSENC_ADD_INDEXED "grpc_slice_buffer_add_indexed")
  set(POSENC_ENDPOINT_WRITE
      "_Z19grpc_endpoint_writeP13grpc_endpointP17grpc_slice_bufferP12grpc_closurePvi"
  )
  target_sources(
    ${target}
    PRIVATE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/grpc_read_slices.cc
            ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/grpc_shortcuts.cc
            ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/grpc_writes.cc)
  foreach(function POSENC_STATUS_CREATE POSENC_STATUS_TO_STRING
                   POSENC_MAKE_SLICE POSENC_ADD_INDEXED POSENC_ENDPOINT_WRITE)
    if(NOT symbols MATCHES " T (${${function}})\n")
      message(FATAL_ERROR "${archive} has no ${function}: see "
                          "docs/adr/0008-functions-of-grpc.md, or set "
                          "POSENC_GRPC_ARCHIVES=OFF")
    endif()
    target_link_options(${target} PRIVATE -Wl,--wrap=${CMAKE_MATCH_1})
    target_compile_definitions(${target}
                               PRIVATE ${function}="${CMAKE_MATCH_1}")
  endforeach()
endfunction()
