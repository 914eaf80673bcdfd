"""Solver adapters, one file each, named like the solver. Installed as ``qcqpbench.solvers``."""
