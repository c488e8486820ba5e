# GNU extensions: __float128 conversions.
add_library(posenc_reposition_reference STATIC reposition_reference.cc
                                               apply_reference.cc)
target_compile_features(posenc_reposition_reference PUBLIC cxx_std_20)
set_target_properties(posenc_reposition_reference PROPERTIES CXX_EXTENSIONS ON)
target_include_directories(posenc_reposition_reference
                           PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(
  posenc_reposition_reference
  PUBLIC posenc::core
  PRIVATE quadmath posenc_warnings)

posenc_test(core_reposition_test LIBS posenc_reposition_reference)
posenc_test(core_reposition_drift_test LIBS posenc_reposition_reference)
posenc_test(core_reposition_validation_test LIBS posenc::core)
posenc_test(core_convert_pairing_test LIBS posenc_reposition_reference)
posenc_test(core_analyze_test LIBS posenc::core posenc_rope_reference quadmath)
