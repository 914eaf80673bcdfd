"""Plug-ins that cheat, lie or misbehave, each in one way; `install` makes them known to all processes of a test."""

import shutil
from pathlib import Path

SOLVERS = {
    "malicious": "tests.support.plugins.malicious:Malicious",
    "patching": "tests.support.plugins.patching:Patching",
    "exiting": "tests.support.plugins.exiting:Exiting",
    "nameless": "tests.support.plugins.nameless:Nameless",
    "lenient": "tests.support.plugins.lenient:Lenient",
    "random_version": "tests.support.plugins.unsteady:RandomVersion",
    "raising_version": "tests.support.plugins.unsteady:RaisingVersion",
    "exiting_version": "tests.support.plugins.unsteady:ExitingVersion",
    "caching": "caching_for_tests:Caching",
}
FAMILIES = {"patching_family": "tests.support.plugins.patching_family:PatchingFamily"}


def install(folder: Path) -> None:
    """Write the metadata of a distribution with the plug-ins as entry points to a folder of the import path."""
    info = folder / "plugins_for_tests-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugins-for-tests\nVersion: 1.0\n")
    groups = {"qcqpbench.solvers": SOLVERS, "qcqpbench.problems": FAMILIES}
    lines = [
        [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())] for group, entries in groups.items()
    ]
    # A package of its own, as it writes to itself.
    shutil.copytree(Path(__file__).parent / "caching_for_tests", folder / "caching_for_tests")
    (info / "entry_points.txt").write_text("\n".join(line for group in lines for line in group) + "\n")
