"""Values that every part of minfer shares: the error tree, model references, digests, units."""
