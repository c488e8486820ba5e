package io.github.posenc;

import static io.github.posenc.Arguments.given;

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
    RopeSource.Builder source = RopeSource.newBuilder();
    boolean json = given("rope", presetOrJson).stripLeading().startsWith("{");
    return (json ? source.setConfigJson(presetOrJson) : source.setPreset(presetOrJson)).build();
  }

  /** Reads a model's config.json or params.json. */
  public static RopeSource of(Path config) {
    try {
      return of(Files.readString(given("rope", config)));
    } catch (IOException e) {
      throw PosencException.invalid("rope", config + " cannot be read: " + e);
    }
  }

  /** Takes a specification, which the server may have resolved. */
  public static RopeSource of(RopeSpec spec) {
    return RopeSource.newBuilder().setSpec(given("rope.spec", spec)).build();
  }

  /**
   * Takes a specification, by the names of {@code RopeSpec}'s fields, if the map has a {@code
   * pairing} (or {@code nope}): {@code Map.of("pairing", "half_split", "rotary_dim", 128,
   * "rope_theta", 5e5)}. Every other map is a model's configuration.
   */
  public static RopeSource of(Map<String, ?> specOrConfig) {
    boolean paired = given("rope", specOrConfig).containsKey("pairing");
    if (!paired && !specOrConfig.containsKey("nope")) return of(new Gson().toJson(specOrConfig));
    RopeSpec.Builder spec = RopeSpec.newBuilder();
    Fields.set(spec, specOrConfig, "rope.spec");
    return of(spec.build());
  }
}
