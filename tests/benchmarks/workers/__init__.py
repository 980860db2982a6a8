"""One process per engine; each runs in the environment its engine is installed in. See ``wire``."""
