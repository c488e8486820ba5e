posenc_test(wire_split_test LIBS posenc_proto SOURCES fuzz/split_check.cc)
