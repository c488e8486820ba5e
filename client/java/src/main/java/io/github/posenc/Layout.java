package io.github.posenc;

/**
 * Order of a tensor's dimensions: B batch, S sequence, H heads, D head_dim, T all tokens of a packed
 * batch. There is no default, because a mistake between BSHD and BHSD would not be noticed.
 */
public enum Layout {
  BSHD("BSHD"),
  BHSD("BHSD"),
  SBHD("SBHD"),
  THD("THD");

  /** Dimensions, outermost first, one letter each. */
  final String dimensions;

  Layout(String dimensions) {
    this.dimensions = dimensions;
  }

  /**
   * Returns the generated enum's value; null is LAYOUT_UNSPECIFIED, which the server refuses by
   * name.
   */
  static io.github.posenc.v1.Layout messageOf(Layout layout) {
    return layout == null ? io.github.posenc.v1.Layout.LAYOUT_UNSPECIFIED : layout.toMessage();
  }

  /** Returns the generated enum's value. */
  public io.github.posenc.v1.Layout toMessage() {
    return io.github.posenc.v1.Layout.valueOf("LAYOUT_" + name());
  }

  /** Returns null if the message has no layout. */
  static Layout of(io.github.posenc.v1.Layout message) {
    for (Layout layout : values()) {
      if (layout.toMessage() == message) return layout;
    }
    return null;
  }
}
