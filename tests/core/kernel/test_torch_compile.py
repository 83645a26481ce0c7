"""The loops inside code that torch compiles, and tensors that they cannot work on."""

import logging
import shutil
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.kernel.compiled import kernel_for, load_kernel
from bayesrnn.core.norms import total_norm
from bayesrnn.core.priors import Gaussian, Prior, ScaleMixture
from bayesrnn.errors import ConfigError

#: torch's compiler warns of what it does itself.
pytestmark = pytest.mark.filterwarnings("ignore:::torch")

needs_kernel = pytest.mark.skipif(load_kernel() is None, reason="no C compiler here")
needs_tracer = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 10),
    reason="earlier torches cannot trace a draw in one graph",
)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 20, padding_idx=0)
        self.output = nn.Linear(20, 50)
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, words):
        return self.output(self.embedding(words).tanh()) * self.scale


class Laplace(Prior):
    std = 0.5

    def log_prob(self, weight, axis):
        return -2 * weight.abs().sum()


@pytest.fixture
def fresh_compiler():
    torch._dynamo.reset()
    logging.disable(logging.WARNING)  # what makes torch split a function is none of ours
    yield
    logging.disable(logging.NOTSET)
    torch._dynamo.reset()


def network(prior, **options):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Bayesian(Model(), prior, 0.05, **options)
        words = torch.randint(50, (7, 3))
    return net, words


def results(net, step, noise):
    net.zero_grad()
    loss, kl = step(noise)
    loss.backward()
    return [loss.detach(), kl.detach(), *(parameter.grad.clone() for parameter in net.parameters())]


@needs_tracer
@needs_kernel
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize(
    ("prior", "backend", "dynamic"),
    [
        (Gaussian(0.3), "eager", True),
        (ScaleMixture(), "eager", True),
        (ScaleMixture(), "aot_eager", True),
        (ScaleMixture(per="weight"), "aot_eager", None),
        (Laplace(), "aot_eager", None),
    ],
    ids=["gaussian", "row", "row-aot", "weight", "laplace"],
)
def test_a_compiled_step_is_the_eager_one(prior, backend, dynamic):
    net, words = network(prior)

    def step(noise):
        weights = net.sample(noise=noise)
        logits = net(words, weights=weights)
        return F.cross_entropy(
            logits.flatten(0, 1), words.flatten()
        ) + 0.01 * weights.kl, weights.kl

    # One graph: nothing of it falls back to the interpreter.
    compiled = torch.compile(step, backend=backend, dynamic=dynamic, fullgraph=True)
    for seed in (1, 2):
        noise = net.noise(seed)
        expected, found = (results(net, each, noise) for each in (step, compiled))
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@needs_tracer
@needs_kernel
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler here")
@pytest.mark.usefixtures("fresh_compiler")
def test_inductor_too():
    net, words = network(ScaleMixture())

    def step(noise):
        weights = net.sample(noise=noise)
        return net(words, weights=weights).square().sum() + 0.01 * weights.kl, weights.kl

    compiled = torch.compile(step, fullgraph=True)
    noise = net.noise(1)
    expected, found = (results(net, each, noise) for each in (step, compiled))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.usefixtures("fresh_compiler")
def test_a_step_that_draws_and_sharpens_by_itself():
    net, words = network(ScaleMixture(), sharpening=True)

    def step(seed):
        torch.manual_seed(seed)
        phi = net.sample()
        theta = net.sharpen(phi, net(words, weights=phi).square().sum(), clip=3.0)
        loss = net(words, weights=theta).square().sum() + theta.minibatch_kl + 0.01 * theta.kl
        return loss, theta.kl

    compiled = torch.compile(step, backend="eager", dynamic=True)
    with torch.random.fork_rng():
        for seed in (1, 2):
            expected, found = (results(net, each, seed) for each in (step, compiled))
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@needs_kernel
def test_every_operator_says_what_it_does():
    ops, x = torch.ops.bayesrnn, torch.rand(4, 3)
    sums, pair = torch.empty(3, dtype=torch.double), torch.empty(2, dtype=torch.double)
    one, starts = torch.ones(()), torch.tensor([0, 1, 2])
    sparse = (starts, torch.tensor([0, 1], dtype=torch.int32), True, torch.ones(2))

    def like():
        return torch.empty_like(x)

    calls = {
        ops.draw: (12, 4, 3, x, x, x, 1.0, 0.1, False, like(), sums, torch.zeros(4, 1), 1, 0),
        ops.gradient: (12, 4, 3, x, x, x, 1.0, 0.1, one, one, 0, 0, x, True, like(), like(), pair),
        ops.normal: (12, 12, 5, 0, like()),
        ops.sum_of_squares: (12, 12, x),
        ops.sharpen: (12, 12, x, x, x, 1.0, 0.1, 5, 0, like()),
        ops.sharpen_gradient: (12, 12, x, x, x, 1.0, one, 0.01, like()),
        ops.pull: (12, 4, 3, x.clone(), x, 0.1, 0.1, one, 0, 0),
        ops.width_step: (12, 12, x.clone(), x, 0.1, 0.05),
        ops.langevin: (12, 12, x.clone(), x, x.clone(), 0.1, 0.1, 0.1, 0.9, 0.1, 5, 0),
        ops.average: (12, 4, 3, x, 0.5, x.clone(), torch.zeros(4)),
        ops.sparse_product: (12, 2, 3, 4, *sparse, x, None, False, torch.zeros(4, 2)),
    }
    for operator, arguments in calls.items():
        # Whether it writes to what its schema says alone, and its fake form gives the same shapes.
        tests = ("test_schema", "test_faketensor")
        torch.library.opcheck(operator.default, arguments, test_utils=tests)


def test_a_sharded_network_is_refused(monkeypatch):
    for name, value in {"ADDR": "localhost", "PORT": "29511"}.items():
        monkeypatch.setenv(f"MASTER_{name}", value)
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        net = Bayesian(nn.Linear(4, 3), sigma_init=0.1)
        whole = net.noise(1)
        fully_shard(net)
        for draw in (net.sample, lambda: net.noise(1), lambda: net.sample(noise=whole)):
            with pytest.raises(ConfigError, match=r"DTensor.*needs each tensor whole"):
                draw()
        with pytest.raises(ConfigError, match="DTensor"):
            total_norm(list(net.parameters()))
    finally:
        dist.destroy_process_group()


def test_tensors_without_numbers_are_refused_and_subclasses_with_numbers_are_left_to_torch():
    with pytest.raises(ConfigError, match="FakeTensor"):
        kernel_for([FakeTensorMode().from_tensor(torch.ones(3))])

    class Own(torch.Tensor):
        pass

    assert kernel_for([torch.ones(3).as_subclass(Own)]) is None
    assert total_norm([torch.full((4,), 2.0).as_subclass(Own)]) == 4.0


def test_torchs_compiler_is_not_loaded_before_it_is_used():
    # It takes as long to import as torch itself.
    code = (
        "import sys, torch, bayesrnn; "
        "net = bayesrnn.Bayesian(torch.nn.Linear(3, 2)); net.sample().kl.backward(); "
        "assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
