posenc_test(cli_files_test LIBS posenc_cli_files)
posenc_test(cli_posenc_test LIBS posenc_cli_files nlohmann_json::nlohmann_json)
target_compile_definitions(cli_posenc_test
                           PRIVATE POSENC_PATH="$<TARGET_FILE:posenc>")
add_dependencies(cli_posenc_test posenc)
