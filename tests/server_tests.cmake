foreach(test rpc apply_error error lifecycle absolute bias score move positions
             drain stream admission machine calls unknown_fields block_pool)
  posenc_test(server_${test}_test LIBS posenc_server)
endforeach()
posenc_test(server_binary_test LIBS posenc_server)
target_compile_definitions(server_binary_test
                           PRIVATE POSENCD="$<TARGET_FILE:posencd>")
add_dependencies(server_binary_test posencd)
