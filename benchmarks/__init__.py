"""What asv measures from commit to commit; `make asv` runs it."""
