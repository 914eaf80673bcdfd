"""Write docs/results/leaderboard.md from the submissions: ``python docs/leaderboard.py``."""

from pathlib import Path

from qcqpbench.analysis.leaderboard import write_leaderboard

RESULTS = Path(__file__).parent / "results"

if __name__ == "__main__":
    write_leaderboard(RESULTS / "submissions", RESULTS / "leaderboard.md")
