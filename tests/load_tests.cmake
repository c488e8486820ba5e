find_package(ZLIB REQUIRED)
posenc_test(load_histogram_test LIBS posenc_load_engine ZLIB::ZLIB)
posenc_test(load_report_test LIBS posenc_load_engine)
posenc_test(load_engine_test LIBS posenc_load_engine gRPC::grpc++)
posenc_test(load_check_test LIBS posenc_load_engine posenc_server)
posenc_test(load_command_test LIBS posenc_load_engine posenc_server)
target_compile_definitions(
  load_command_test PRIVATE POSENC_LOAD_PATH="$<TARGET_FILE:posenc-load>")
add_dependencies(load_command_test posenc-load)
