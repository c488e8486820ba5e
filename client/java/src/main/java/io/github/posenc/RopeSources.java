package io.github.posenc;

import com.google.gson.Gson;
import io.github.posenc.v1.RopeSource;
import io.github.posenc.v1.RopeSpec;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

/**
 * Makes sources of rotary encodings: a specification, a preset's name, or a model's own
 * configuration.
 *
 * <p>{@code toBuilder()} of a result sets the other fields: profile, profile_version, part, layer,
 * sequence_length, head_dim.
 */
public final class RopeSources {
  private RopeSources() {
  }

  /**
   * Takes the text of a config.json or params.json if it begins with a brace, else a preset's name.
   */
  public static RopeSource of(String presetOrJson) {
    Arguments.given("rope", presetOrJson);
    return presetOrJson.stripLeading().startsWith("{")
        ? RopeSource.newBuilder().setConfigJson(presetOrJson).build()
        : RopeSource.newBuilder().setPreset(presetOrJson).build();
  }

  /** Reads a model's config.json or params.json. */
  public static RopeSource of(Path config) {
    Arguments.given("rope", config);
    try {
      return RopeSource.newBuilder().setConfigJson(Files.readString(config)).build();
    } catch (IOException e) {
      throw PosencException.invalid("rope", config + " cannot be read: " + e);
    }
  }

  /** Takes a specification, which the server may have resolved. */
  public static RopeSource of(RopeSpec spec) {
    return RopeSource.newBuilder().setSpec(Arguments.given("rope.spec", spec)).build();
  }

  /**
   * Takes a specification, by the names of {@code RopeSpec}'s fields, if the map has a {@code
   * pairing} (or {@code nope}): {@code Map.of("pairing", "half_split", "rotary_dim", 128,
   * "rope_theta", 5e5)}. Every other map is a model's configuration.
   */
  public static RopeSource of(Map<String, ?> specOrConfig) {
    Arguments.given("rope", specOrConfig);
    if (specOrConfig.containsKey("pairing") || specOrConfig.containsKey("nope")) {
      RopeSpec.Builder spec = RopeSpec.newBuilder();
      Fields.set(spec, specOrConfig, "rope.spec");
      return of(spec.build());
    }
    return RopeSource.newBuilder().setConfigJson(new Gson().toJson(specOrConfig)).build();
  }
}
