posenc_test(core_buckets_test LIBS posenc::core quadmath)
posenc_test(core_bias_test LIBS posenc::core quadmath)
posenc_test(core_score_test LIBS posenc::core quadmath)
posenc_test(relative_peers_test LIBS posenc::core nlohmann_json::nlohmann_json)
