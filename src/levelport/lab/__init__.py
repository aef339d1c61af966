"""The laboratory: the engine that runs experiments, the studies of the paper, the benchmarks, the report."""
