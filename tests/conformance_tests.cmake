# The vectors of proto/testdata/conformance, through a server in the process.
posenc_test(conformance_test LIBS posenc_server nlohmann_json::nlohmann_json)
target_compile_definitions(
  conformance_test
  PRIVATE POSENC_VECTORS="${PROJECT_SOURCE_DIR}/proto/testdata/conformance")
