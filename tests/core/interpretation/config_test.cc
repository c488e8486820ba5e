// Tests which configurations have rotary keys.

#include <gtest/gtest.h>

#include "core/interpretation/classes/known_keys.h"
#include "core/interpretation/report.h"
#include "nlohmann/json.hpp"

namespace posenc::core::interpretation {
namespace {

using nlohmann::json;

TEST(ModelConfigTest, SomeKeysSayThatAModelRotates) {
  Report report;
  for (const json& config :
       {json{{"rope_theta", 1e4}}, json{{"rotary_dim", 64}},
        json{{"position_embedding_type", "rotary"}},
        json{{"attn_config", {{"rope_theta", 1e4}}}}}) {
    EXPECT_TRUE(HasRotaryKey(JsonObject(&config, "", &report)))
        << config.dump();
  }
  const json none = {{"hidden_size", 64},
                     {"position_embedding_type", "absolute"}};
  EXPECT_FALSE(HasRotaryKey(JsonObject(&none, "", &report)));
}

}  // namespace
}  // namespace posenc::core::interpretation
