"""The benchmark at equal cost: how far each method gets for how many evaluations."""
