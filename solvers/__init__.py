"""One file per solver adapter; the file's name is the solver's. Installed as ``qcqpbench.solvers``."""
