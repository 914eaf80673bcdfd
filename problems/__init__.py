"""Problem families, one file each, named like the family. Installed as ``qcqpbench.problems``."""
