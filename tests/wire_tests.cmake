posenc_test(wire_split_test LIBS posenc_proto SOURCES fuzz/split_check.cc)
posenc_test(core_runtime_test LIBS posenc_core)
posenc_test(wire_frame_test LIBS posenc_proto)
