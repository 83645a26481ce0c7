import asyncio
import threading

import pytest
import torch
from torch import nn

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.serve.jobs import Jobs
from bayesrnn.serve.refusal import Refusal


def endless(net, started, ended):
    """Work that calls a network until something stops it."""

    def work():
        started.set()
        try:
            while True:
                net(torch.ones(1, 2))
        finally:
            ended.set()

    return work


async def is_set(event):
    while not event.is_set():
        await asyncio.sleep(0.001)


def run(scenario, **settings):
    async def inside():
        jobs = Jobs(**settings)
        try:
            return await scenario(jobs)
        finally:
            jobs.close()

    return asyncio.run(inside())


def test_jobs_run_one_after_the_other_in_the_order_in_which_they_came():
    order, inside = [], []

    def work(number):
        inside.append(number)
        order.append((number, len(inside)))
        inside.remove(number)
        return number

    async def scenario(jobs):
        return await asyncio.gather(*(jobs.run(lambda n=n: work(n)) for n in range(5)))

    assert run(scenario) == list(range(5))
    assert order == [(number, 1) for number in range(5)]


def test_one_more_than_may_wait_is_refused_with_when_to_try_again():
    async def scenario(jobs):
        with jobs.place(), jobs.place(), jobs.place():
            assert jobs.inside == 3
            with pytest.raises(Refusal, match="busy") as refused, jobs.place():
                pass
        with jobs.place():  # all places are free again
            return refused.value

    refusal = run(scenario, waiting=2)
    assert (refusal.status, refusal.retry_after) == (503, 1)


@pytest.mark.parametrize("make", [lambda: nn.Linear(2, 2), lambda: Bayesian(nn.Linear(2, 2))])
def test_what_takes_too_long_is_stopped_at_a_call_of_any_network_and_the_next_is_answered(make):
    started, ended = threading.Event(), threading.Event()

    async def scenario(jobs):
        with pytest.raises(Refusal, match="may take") as refused:
            await jobs.run(endless(make(), started, ended))
        assert await jobs.run(lambda: "next") == "next"
        return refused.value

    assert run(scenario, seconds=0.05).status == 504
    assert ended.is_set()


def test_a_job_that_is_cancelled_is_stopped_and_so_is_one_that_waits():
    started, ended, never = threading.Event(), threading.Event(), []

    async def scenario(jobs):
        first = asyncio.ensure_future(jobs.run(endless(nn.Linear(2, 2), started, ended)))
        second = asyncio.ensure_future(jobs.run(lambda: never.append(1)))
        await is_set(started)
        second.cancel()
        first.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        return await jobs.run(lambda: "next")

    assert run(scenario) == "next"
    assert ended.is_set()
    assert never == []


def test_networks_outside_of_jobs_are_never_stopped():
    async def scenario(jobs):
        started, ended = threading.Event(), threading.Event()
        job = asyncio.ensure_future(jobs.run(endless(nn.Linear(2, 2), started, ended)))
        await is_set(started)
        job.cancel()
        nn.Linear(2, 2)(torch.ones(1, 2))
        await asyncio.gather(job, return_exceptions=True)
        await is_set(ended)

    run(scenario)
    nn.Linear(2, 2)(torch.ones(1, 2))


def test_an_error_of_the_work_is_that_of_the_job():
    async def scenario(jobs):
        with pytest.raises(ZeroDivisionError):
            await jobs.run(lambda: 1 / 0)
        return await jobs.run(lambda: "next")

    assert run(scenario) == "next"
