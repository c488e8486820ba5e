"""One file for each group of rows; each has run(world)."""
