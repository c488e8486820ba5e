package io.github.posenc;

import io.github.posenc.v1.RopeSource;
import io.github.posenc.v1.RopeSpec;
import java.util.Map;

/** Sources of encodings, for requests. */
final class Sources {
  private Sources() {}

  static RopeSource of(Map<String, ?> spec) {
    RopeSpec.Builder builder = RopeSpec.newBuilder();
    Fields.set(builder, spec, "rope.spec");
    return RopeSource.newBuilder().setSpec(builder).build();
  }

  static RopeSource preset(String name) {
    return RopeSource.newBuilder().setPreset(name).build();
  }
}
