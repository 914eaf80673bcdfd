"""Problem families, one file per family with the name of the family. Installed as ``qcqpbench.problems``."""
