"""README and docs, made from results."""
