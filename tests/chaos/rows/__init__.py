"""One file a group of rows; each has run(world)."""
