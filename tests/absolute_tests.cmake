posenc_test(core_absolute_test LIBS posenc::core posenc_rope_reference quadmath)
# GNU extensions: __float128 literals.
set_target_properties(core_absolute_test PROPERTIES CXX_EXTENSIONS ON)
posenc_test(core_learned_test LIBS posenc::core posenc_rope_reference quadmath)
# GNU extensions: __float128 literals.
set_target_properties(core_learned_test PROPERTIES CXX_EXTENSIONS ON)
posenc_test(core_absolute_validation_test LIBS posenc::core)
posenc_test(core_add_encoding_test LIBS posenc::core posenc_rope_reference
            quadmath)
posenc_test(absolute_peers_test LIBS posenc::core nlohmann_json::nlohmann_json)
