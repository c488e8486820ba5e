posenc_test(cli_files_test LIBS posenc_cli_files)

foreach(name cli_posenc_test cli_commands_test cli_stream_test)
  posenc_test(${name} LIBS posenc_cli_files nlohmann_json::nlohmann_json)
  target_compile_definitions(${name}
                             PRIVATE POSENC_PATH="$<TARGET_FILE:posenc>")
  add_dependencies(${name} posenc)
endforeach()
target_link_libraries(cli_stream_test PRIVATE posenc_server)
