"""The engine: what a run is, where results are kept, and where runs are computed."""
