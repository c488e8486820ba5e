posenc_test(core_apply_test LIBS posenc_core SOURCES apply_reference.cc)
posenc_test(core_apply_properties_test LIBS posenc_core SOURCES
            apply_reference.cc)
posenc_test(core_apply_validation_test LIBS posenc_core)

# The rules of the contract, over its descriptors: `./run lint` runs the same.
add_executable(posenc-proto-lint proto_lint.cc)
target_compile_features(posenc-proto-lint PRIVATE cxx_std_20)
target_link_libraries(posenc-proto-lint PRIVATE protobuf::libprotobuf
                                                posenc_warnings)
foreach(lint proto_lint proto_lint_finds_every_fault)
  if(lint STREQUAL proto_lint)
    set(root ${PROJECT_SOURCE_DIR}/proto)
    set(files posenc/v1/absolute.proto posenc/v1/errors.proto
        posenc/v1/relative.proto posenc/v1/rope.proto posenc/v1/service.proto
        posenc/v1/tensor.proto)
  else()
    set(root ${CMAKE_CURRENT_SOURCE_DIR}/data/proto_lint)
    set(files posenc/v1/bad.proto)
  endif()
  add_test(
    NAME ${lint}
    COMMAND
      ${CMAKE_COMMAND} -DPROTOC=$<TARGET_FILE:protobuf::protoc>
      -DLINT=$<TARGET_FILE:posenc-proto-lint> -DROOT=${root} "-DFILES=${files}"
      -DSET=${CMAKE_CURRENT_BINARY_DIR}/${lint}.pb
      -DEXPECTED=${root}/expected.txt -P
      ${CMAKE_CURRENT_SOURCE_DIR}/proto_lint.cmake)
endforeach()
