"""The memory page that driver and supervisor share."""

import os
from collections.abc import Iterator

import pytest

from qcqpbench.run.isolation.shared_state import ControlPage, Limits, Usage


@pytest.fixture
def page() -> Iterator[ControlPage]:
    file = os.memfd_create("page")
    os.ftruncate(file, os.sysconf("SC_PAGE_SIZE"))
    page = ControlPage(file)
    os.close(file)
    yield page
    page.close()


def test_limits_are_those_of_the_pending_request(page: ControlPage) -> None:
    assert page.request() == 0
    limits = Limits(1.0, 2.0, 3.0, 4.0, 5e9, 6.0)
    page.begin_request(7, limits, cpu_before=0.5)
    assert (page.request(), page.limits(), page.cpu_before) == (7, limits, 0.5)
    assert [limits.seconds(phase) for phase in range(5)] == [1, 1, 2, 3, 4] and limits.total_seconds == 10
    page.end_request()
    assert page.request() == 0


def test_usage_of_another_request_does_not_count(page: ControlPage) -> None:
    usage = Usage(memory_bytes=1e9, threads=3, over=2, looks=5)
    page.report(7, usage)
    assert page.usage(7) == usage
    assert page.usage(8) == page.usage(6) == Usage()
    page.begin_request(8, Limits(1.0), cpu_before=0.0)
    assert page.usage(8) == Usage()
