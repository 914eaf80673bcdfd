"""One file per problem family; the file's name is the family's. Installed as ``qcqpbench.problems``."""
