"""The benchmark at equal cost: who gets how far for how many evaluations, and what our own code costs besides."""
