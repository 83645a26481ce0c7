"""A `Bayesian` in loops of one's own: what torch offers around a network goes on working."""

import copy
import socket

import pytest
import torch
from torch import distributed, multiprocessing, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import bayesrnn as br


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrent = nn.GRU(1, 6, batch_first=True)
        self.output = nn.Linear(6, 2)

    def forward(self, x):
        return self.output(self.recurrent(x)[0][:, -1])


class WithKL(nn.Module):
    """Output and KL of one draw, in one call: what is wrapped where gradients are averaged."""

    def __init__(self, net):
        super().__init__()
        self.net = net
        self.generator = None

    def forward(self, x):
        weights = self.net.sample(self.generator)
        return self.net(x, weights=weights), weights.kl


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def made(sigma=0.1, prior=None):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return br.Bayesian(
            Reader(), prior or br.Gaussian(0.5), sigma_init=sigma, generator=seeded()
        )


def data(count=24, seed=1):
    x = torch.randn(count, 5, 1, generator=seeded(seed))
    return x, (x.sum((1, 2)) > 0).long()


def gradients(net):
    return {name: parameter.grad.clone() for name, parameter in net.named_parameters()}


def assert_same(one, other, **tolerance):
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, other[name], **tolerance)


def test_gradient_accumulation_charges_what_one_large_minibatch_does():
    """With the same draw, parts of a third each, each with a third of the loss, are the whole."""
    x, y = data()
    whole, parts = made(), made()
    weights = whole.sample(noise=whole.noise(5))
    nll = F.cross_entropy(whole(x, weights=weights), y)
    br.elbo(nll, weights, dataset_size=100).backward()
    for part_x, part_y in zip(x.chunk(3), y.chunk(3), strict=True):
        weights = parts.sample(noise=parts.noise(5))
        nll = F.cross_entropy(parts(part_x, weights=weights), part_y)
        (br.elbo(nll, weights, dataset_size=100) / 3).backward()
    assert_same(gradients(whole), gradients(parts), rtol=1e-4, atol=1e-6)


def test_a_schedule_of_torch_moves_the_rates_of_means_and_widths():
    net = made(prior=br.FittedGaussian())
    means = torch.optim.Adam(net.mean_parameters(), lr=0.01)
    widths = br.WidthSGD(net.rho.parameters(), lr=1.0)
    schedules = [
        torch.optim.lr_scheduler.CosineAnnealingLR(each, T_max=4) for each in (means, widths)
    ]
    x, y = data()
    for _ in range(4):
        weights = net.sample(seeded(3))
        br.elbo(F.cross_entropy(net(x, weights=weights), y), weights, dataset_size=24).backward()
        for each, schedule in zip((means, widths), schedules, strict=True):
            each.step()
            each.zero_grad()
            schedule.step()
    assert means.param_groups[0]["lr"] == widths.param_groups[0]["lr"] == 0


def test_under_autocast_products_have_16_bits_and_the_kl_has_32():
    x, y = data()
    net = made()
    weights = net.sample(seeded(2))
    with torch.autocast("cpu", torch.bfloat16):
        same = net.sample(seeded(2))
        output = net(x, weights=same)
        nll = F.cross_entropy(output, y)
    assert output.dtype == torch.bfloat16
    assert same.kl.dtype == torch.float32
    assert torch.equal(same.kl, weights.kl)
    br.elbo(nll, same, dataset_size=24).backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in net.parameters())


def test_a_copy_goes_its_own_way():
    x, _ = data()
    net = made()
    other = copy.deepcopy(net)
    assert_same(dict(net.sample(seeded(1))), dict(other.sample(seeded(1))))
    with torch.no_grad():
        other.module.output.bias += 1
    assert not torch.equal(net.eval()(x), other.eval()(x))


def test_moves_to_another_type_and_device():
    x, y = data()
    net = made()
    single = net.sample(noise=net.noise(3))
    double = copy.deepcopy(net).to(torch.double)
    weights = double.sample(seeded(3))
    assert all(tensor.dtype == torch.double for tensor in weights.values())
    output = double(x.double(), weights=weights)
    br.elbo(F.cross_entropy(output, y), weights, dataset_size=24).backward()
    assert double.eval()(x.double()).dtype == torch.double
    back = double.to(torch.float32)
    torch.testing.assert_close(back.sample(noise=back.noise(3)).kl, single.kl)
    meta = copy.deepcopy(net).to("meta")  # the one other device that is always there
    assert {parameter.device.type for parameter in meta.parameters()} == {"meta"}


def process(rank, port, shared, results):
    """One of two processes: half of the data, noise of its own or the same."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    x, y = (part.chunk(2)[rank] for part in data())
    model = WithKL(made())
    wrapped = DistributedDataParallel(model)
    model.generator = seeded(7 if shared else 7 + rank)
    output, kl = wrapped(x)
    (F.cross_entropy(output, y) + kl / 24).backward()
    if rank == 0:
        results.update({name: gradient.tolist() for name, gradient in gradients(model.net).items()})
    distributed.destroy_process_group()


@pytest.mark.parametrize("shared", [True, False])
def test_distributed_data_parallel(shared):
    """The gradient is the mean over processes, each with its own half of the data."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with multiprocessing.get_context("spawn").Manager() as manager:
        results = manager.dict()
        multiprocessing.spawn(process, (port, shared, results), nprocs=2)
        found = {name: torch.tensor(gradient) for name, gradient in results.items()}
    expected = made()
    x, y = data()
    for rank in range(2):
        weights = expected.sample(seeded(7 if shared else 7 + rank))
        output = expected(x.chunk(2)[rank], weights=weights)
        nll = F.cross_entropy(output, y.chunk(2)[rank])
        (br.elbo(nll, weights, dataset_size=24) / 2).backward()
    assert_same(gradients(expected), found, rtol=1e-4, atol=1e-6)
