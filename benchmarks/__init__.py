"""Benchmarks that asv runs on every commit; `make asv` starts it."""
