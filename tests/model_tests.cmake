posenc_test(model_config_test LIBS posenc::core)
posenc_test(model_presets_test LIBS posenc::core)
posenc_test(model_peers_test LIBS posenc::core nlohmann_json::nlohmann_json)
posenc_test(model_compare_test LIBS posenc::core)
