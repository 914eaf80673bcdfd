"""Benchmarks that asv runs on every commit."""
