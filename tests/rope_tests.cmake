# GNU extensions: __float128 literals.
add_library(posenc_rope_reference STATIC reference/rope_reference.cc)
target_compile_features(posenc_rope_reference PUBLIC cxx_std_20)
set_target_properties(posenc_rope_reference PROPERTIES CXX_EXTENSIONS ON)
target_include_directories(posenc_rope_reference PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(posenc_rope_reference PRIVATE quadmath posenc_warnings)

posenc_test(core_frequencies_test LIBS posenc::core posenc_rope_reference)
posenc_test(core_frequencies_validation_test LIBS posenc::core)
posenc_test(core_tensor_test LIBS posenc::core)
posenc_test(core_positions_test LIBS posenc::core)
posenc_test(core_table_test LIBS posenc::core posenc_rope_reference)
posenc_test(core_sinusoidal_test LIBS posenc::core posenc_rope_reference
            quadmath)
