"""Dask clusters with TLS: only a driver with a certificate of the cluster's authority can use them."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.run.pools.test_dask_pool import kill, wait_for_address
from tests.support.results_files import read_rows

pytest.importorskip("distributed")

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.xdist_group("dask")]

SCRIPT = Path(sys.executable).with_name("qcqpbench")
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
Driver = subprocess.CompletedProcess[str]


def make_certificate(folder: Path, name: str) -> dict[str, Path]:
    """Make a certificate authority and a certificate of it with openssl, as docs/howto/cluster.md describes."""
    files = {file: folder / f"{name}-{file}" for file in ("ca.pem", "ca.key", "cert.pem", "key.pem", "request.pem")}
    paths = {file: str(path) for file, path in files.items()}
    days = ("-days", "1")
    authority = ("-keyout", paths["ca.key"], "-out", paths["ca.pem"])
    request = ("-keyout", paths["key.pem"], "-out", paths["request.pem"])
    signing = ("-CA", paths["ca.pem"], "-CAkey", paths["ca.key"], "-CAcreateserial", "-out", paths["cert.pem"])
    for words in (
        ("req", "-x509", *KEY, *days, "-subj", f"/CN=authority {name}", *authority),
        ("req", *KEY, "-subj", f"/CN=cluster {name}", *request),
        ("x509", "-req", "-in", paths["request.pem"], *days, *signing),
    ):
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)
    return files


def variables(files: dict[str, Path] | None) -> dict[str, str]:
    """Return the environment variables of a driver with these certificates."""
    if files is None:
        return {}
    tls = "DASK_DISTRIBUTED__COMM__TLS__"
    paths = {"CA_FILE": "ca.pem", "CLIENT__CERT": "cert.pem", "CLIENT__KEY": "key.pem"}
    chosen = {f"{tls}{name}": str(files[file]) for name, file in paths.items()}
    return chosen | {"DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true"}


def drive(folder: Path, address: str, files: dict[str, Path] | None) -> Driver:
    words = ("run", "-p", "parity[m=2]", "-s", "slsqp", "-r", "1", "--dask", address, "-o", "results.db")
    environment = os.environ | variables(files)
    return subprocess.run([SCRIPT, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is missing, which makes the certificates")
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def own(folder: Path) -> dict[str, Path]:
    return make_certificate(folder, "own")


@pytest.fixture(scope="module")
def address(folder: Path, own: dict[str, Path]) -> Iterator[str]:
    """Start a scheduler and a worker that require certificates of one authority; return the address."""
    options = ["--tls-ca-file", own["ca.pem"], "--tls-cert", own["cert.pem"], "--tls-key", own["key.pem"]]
    options += ["--scheduler-file", "scheduler.json", "--host", "127.0.0.1", "--no-dashboard"]
    with contextlib.ExitStack() as stack:

        def dask(role: str, *further: str) -> subprocess.Popen[str]:
            words = [sys.executable, "-m", f"distributed.cli.dask_{role}", *map(str, options), *further]
            none = subprocess.DEVNULL
            process = stack.enter_context(
                subprocess.Popen(words, cwd=folder, stdout=none, stderr=none, text=True, start_new_session=True)
            )
            stack.callback(kill, process)
            return process

        scheduler = dask("scheduler", "--port", "0", "--protocol", "tls")
        found = wait_for_address(folder / "scheduler.json", scheduler)
        dask("worker", "--protocol", "tls", "--nthreads", "1")
        yield found


def test_a_driver_with_a_certificate_runs(folder: Path, own: dict[str, Path], address: str) -> None:
    assert address.startswith("tls://")
    done = drive(folder, address, own)
    assert done.returncode == 0, done.stderr
    (row,) = read_rows(folder / "results.db")
    assert row.worker.startswith("tls://") and row.kappa_bar is not None


def test_a_driver_without_a_certificate_is_refused(folder: Path, address: str) -> None:
    done = drive(folder, address, None)
    assert done.returncode == 2 and "perhaps check your TLS configuration" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_driver_with_a_certificate_of_another_authority_is_refused(folder: Path, address: str) -> None:
    done = drive(folder, address, make_certificate(folder, "other"))
    assert done.returncode == 2 and "TLS certificate does not match" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_driver_that_requires_encryption_refuses_tcp(folder: Path, own: dict[str, Path], address: str) -> None:
    done = drive(folder, address.replace("tls://", "tcp://"), own)
    assert done.returncode == 2 and "encryption required by Dask configuration" in done.stderr
    assert len(done.stderr.splitlines()) == 1
