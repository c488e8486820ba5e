posenc_test(client_client_test LIBS posenc_client gRPC::grpc++)
target_compile_definitions(
  client_client_test
  PRIVATE
    POSENC_SERVICE_CONFIG_FILE="${PROJECT_SOURCE_DIR}/client/service_config.json"
)
posenc_test(client_cut_test LIBS posenc_client)
posenc_test(client_bulk_test LIBS posenc_client gRPC::grpc++)
posenc_test(client_bias_test LIBS posenc_client gRPC::grpc++)
posenc_test(client_stream_test LIBS posenc_client gRPC::grpc++)
posenc_test(client_table_stream_test LIBS posenc_client gRPC::grpc++)
posenc_test(client_balance_test LIBS posenc_client posenc_server)
posenc_test(client_views_test LIBS posenc_client posenc_server)
posenc_test(client_rpcs_test LIBS posenc_client posenc_server)

# The main job through real sockets, and posencd with every instruction set.
posenc_test(e2e_test LIBS posenc_server posenc_client)
posenc_test(e2e_isa_test LIBS posenc_client)
target_compile_definitions(e2e_isa_test
                           PRIVATE POSENCD_PATH="$<TARGET_FILE:posencd>")
add_dependencies(e2e_isa_test posencd)

# A project of somebody else's, built against what is installed.
add_test(NAME client_install
         COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/install/run.sh ${CMAKE_COMMAND}
                 ${PROJECT_BINARY_DIR} ${CMAKE_CXX_COMPILER}
                 "${CMAKE_CXX_FLAGS}")
set_tests_properties(client_install PROPERTIES TIMEOUT 300)
