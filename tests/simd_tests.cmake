add_test(
  NAME KernelObjectsExportOneTableEach
  COMMAND
    ${CMAKE_COMMAND} -DNM=${CMAKE_NM}
    "-DOBJECTS=$<TARGET_OBJECTS:posenc_simd>" -P
    ${CMAKE_CURRENT_SOURCE_DIR}/core_isolation_test.cmake)
posenc_test(core_simd_dispatch_test LIBS posenc_simd)
posenc_test(core_simd_convert_test LIBS posenc_simd)
posenc_test(core_simd_rotate_test LIBS posenc_simd)
posenc_test(core_simd_trig_test LIBS posenc_core quadmath)
posenc_test(core_rope_turns_test LIBS posenc_core quadmath)
