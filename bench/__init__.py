"""Side-by-side benchmarks; each prints what it measured and appends to the ledger when told."""
