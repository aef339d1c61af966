"""Measurements that take minutes: run one with ``python -m benchmarks.NAME``."""
