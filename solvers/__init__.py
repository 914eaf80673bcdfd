"""Solver adapters, one file per solver with the name of the solver. Installed as ``qcqpbench.solvers``."""
