posenc_test(peers_kinds_test LIBS posenc::core nlohmann_json::nlohmann_json)
posenc_test(peers_operators_test LIBS posenc::core
            nlohmann_json::nlohmann_json)
