"""Worker processes: parallel jobs, of which some die, hang or print."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from eagerdecomp.conformance.workers import Beat, Lost, done_in_processes, has_fork, survives


def work(job: int, beat: Beat) -> tuple[int, int]:
    beat(["begun", job])
    time.sleep({0: 0.5, 1: 0.8}.get(job, 0.0))
    if job == 3:
        print("going down", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    if job == 5:
        time.sleep(600)
    if job == 6:
        for step in range(30):
            beat(step)
            time.sleep(0.05)
    return job, os.getpid()


@pytest.mark.full
def test_every_job_is_returned_or_reported_lost() -> None:
    results = {}
    for number, found in done_in_processes(range(9), work, 2, 1.0):
        results[number] = found
        time.sleep(0 if number else 1.5)  # longer than a job may be silent: job 1, which ends meanwhile, does not hang
    assert sorted(results) == list(range(9))
    lost = {job: result for job, result in results.items() if isinstance(result, Lost)}
    assert sorted(lost) == [3, 5]
    assert lost[3].how == "crash"
    assert "SIGSEGV" in lost[3].message
    assert "going down" in lost[3].words
    assert lost[3].last == ["begun", 3]
    assert (lost[5].how, lost[5].last) == ("hang", ["begun", 5])
    done = [result for result in results.values() if not isinstance(result, Lost)]
    assert all(results[job][0] == job for job in results if job not in lost)
    assert os.getpid() not in {process for _, process in done}


def test_no_process_is_left() -> None:
    jobs = done_in_processes(range(4), work, 2, 30.0)
    _, (_, process) = next(jobs)
    jobs.close()
    with pytest.raises(ProcessLookupError):
        _ = [(os.kill(process, 0), time.sleep(0.05)) for _ in range(100)]


@pytest.mark.full
def test_whether_work_survives() -> None:
    assert survives(lambda: None, 10.0)
    assert not survives(os.abort, 10.0)
    assert not survives(lambda: time.sleep(60), 0.3)
    assert not survives(lambda: os._exit(3), 10.0)


def test_devices_with_a_driver_are_not_forked() -> None:
    assert has_fork("cpu")
    assert not has_fork("cuda")
