package io.github.posenc;

import com.google.gson.Gson;
import io.github.posenc.v1.RopeSource;
import io.github.posenc.v1.RopeSpec;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

/**
 * Which rotary encoding: written out, named, or read from a model's own configuration.
 *
 * <p>{@code toBuilder()} of what these return sets the rest: profile, profile_version, part, layer, sequence_length,
 * head_dim.
 */
public final class RopeSources {
  private RopeSources() {}

  /** The text of a config.json or params.json if it begins with a brace, else a preset's name. */
  public static RopeSource of(String presetOrJson) {
    PosencException.given("rope", presetOrJson);
    return presetOrJson.stripLeading().startsWith("{")
        ? RopeSource.newBuilder().setConfigJson(presetOrJson).build()
        : RopeSource.newBuilder().setPreset(presetOrJson).build();
  }

  /** A file that holds a model's config.json or params.json. */
  public static RopeSource of(Path config) {
    PosencException.given("rope", config);
    try {
      return RopeSource.newBuilder().setConfigJson(Files.readString(config)).build();
    } catch (IOException e) {
      throw PosencException.invalid("rope", config + " cannot be read: " + e);
    }
  }

  /** An encoding that is written out, or that the server resolved. */
  public static RopeSource of(RopeSpec spec) {
    return RopeSource.newBuilder().setSpec(PosencException.given("rope.spec", spec)).build();
  }

  /**
   * A specification, by the names of {@code RopeSpec}'s fields, if there is a {@code pairing} (or
   * {@code nope}): {@code Map.of("pairing", "half_split", "rotary_dim", 128, "rope_theta", 5e5)}.
   * Every other map is a model's configuration.
   */
  public static RopeSource of(Map<String, ?> specOrConfig) {
    PosencException.given("rope", specOrConfig);
    if (specOrConfig.containsKey("pairing") || specOrConfig.containsKey("nope")) {
      RopeSpec.Builder spec = RopeSpec.newBuilder();
      Fields.set(spec, specOrConfig, "rope.spec");
      return of(spec.build());
    }
    return RopeSource.newBuilder().setConfigJson(new Gson().toJson(specOrConfig)).build();
  }
}
