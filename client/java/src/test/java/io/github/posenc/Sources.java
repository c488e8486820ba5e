package io.github.posenc;

import io.github.posenc.v1.Pairing;
import io.github.posenc.v1.RopeSource;
import io.github.posenc.v1.RopeSpec;

/** Sources of encodings, for requests. */
final class Sources {
  /** An encoding that rotates all channels of a head. */
  static final RopeSource HALF_SPLIT = of(RopeSpec.newBuilder());

  private Sources() {}

  /** Returns an encoding that rotates this number of channels. */
  static RopeSource ofWidth(int rotaryDim) {
    return of(RopeSpec.newBuilder().setRotaryDim(rotaryDim));
  }

  static RopeSource of(RopeSpec.Builder spec) {
    return RopeSource.newBuilder().setSpec(spec.setPairing(Pairing.PAIRING_HALF_SPLIT)).build();
  }

  static RopeSource preset(String name) {
    return RopeSource.newBuilder().setPreset(name).build();
  }
}
