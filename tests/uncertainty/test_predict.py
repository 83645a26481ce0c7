"""Prediction under uncertainty, against a direct computation over the same draws."""

import copy
import gc
import math

import pytest
import torch
from torch import nn
from torch.distributions import Categorical

import bayesrnn as br
from bayesrnn.core.noise import draw_seed
from bayesrnn.errors import ConfigError
from bayesrnn.random import RandomStreams
from bayesrnn.tasks.lm.model import LanguageModel


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def made(make):
    """A network with the same first weights each time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make()


@pytest.fixture
def net():
    return made(lambda: br.Bayesian(nn.Linear(4, 5), sigma_init=0.8))


@pytest.fixture
def inputs():
    return torch.randn(7, 4, generator=seeded(1))


@pytest.fixture
def dropout_net():
    layers = (nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Linear(6, 5))
    net = made(lambda: nn.Sequential(*layers))
    net[1].running_mean.copy_(torch.linspace(-1, 1, 6))
    net[1].running_var.copy_(torch.linspace(0.5, 2, 6))
    return net


class Through(nn.Module):
    """A module, and a function of what comes out of it."""

    def __init__(self, module, function):
        super().__init__()
        self.module, self.function, self.calls = module, function, 0

    def forward(self, *args, **kwargs):
        self.calls += 1
        return self.function(self.module(*args, **kwargs))


@torch.no_grad()
def posterior_outputs(net, *inputs, samples, seed):
    """The outputs with fresh noise and with its mirror image, in turns."""
    generator = seeded(seed)
    outputs = []
    for _ in range(math.ceil(samples / 2)):
        weights = net.sample(generator)
        mirror = net.sample(noise=weights.noise.mirrored())
        mean = net.mean()
        for name, drawn in weights.items():
            torch.testing.assert_close(drawn + mirror[name], 2 * mean[name])
        outputs += [net(*inputs, weights=weights), net(*inputs, weights=mirror)]
    return outputs[:samples]


@torch.no_grad()
def dropout_outputs(net, *inputs, samples, seed):
    """The outputs of `net`, where only dropout knows of training, one after the other."""
    masks = RandomStreams(draw_seed(seeded(seed)))["dropout"]
    net = copy.deepcopy(net).train()
    with torch.random.fork_rng():
        torch.set_rng_state(masks.get_state())
        return [net(*inputs) for _ in range(samples)]


def assert_direct(found, draws, rtol=1e-5, atol=1e-6):
    """Compare with the logits of all draws, in double precision."""
    members = Categorical(logits=torch.stack(draws).double())
    mean = members.probs.mean(0)
    total = Categorical(probs=mean).entropy()
    aleatoric = members.entropy().mean(0)
    torch.testing.assert_close(found.mean.double(), mean, rtol=rtol, atol=atol)
    torch.testing.assert_close(found.total.double(), total, rtol=rtol, atol=atol)
    torch.testing.assert_close(found.aleatoric.double(), aleatoric, rtol=rtol, atol=atol)
    torch.testing.assert_close(
        found.epistemic.double(), total - aleatoric, rtol=10 * rtol, atol=10 * atol
    )


def modes(net):
    return {name: layer.training for name, layer in net.named_modules()}


@pytest.mark.parametrize("samples", [1, 2, 9])
def test_uncertainty_against_a_direct_computation(net, inputs, samples):
    found = br.predict(net, inputs, samples=samples, generator=seeded(2))
    assert_direct(found, posterior_outputs(net, inputs, samples=samples, seed=2))
    assert (found.epistemic > 0.01).any() == (samples > 1)


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, dropout=0.4)

    def forward(self, x):
        return self.attention(x, x, x)


DROPPING = {
    "units": lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.4), nn.Linear(6, 3)),
    "channels": lambda: nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Dropout1d(0.4), nn.Flatten()),
    "alpha": lambda: nn.Sequential(nn.Linear(4, 6), nn.SELU(), nn.AlphaDropout(0.4)),
    "between layers": lambda: nn.LSTM(4, 3, num_layers=2, dropout=0.4),
    "batch first": lambda: nn.GRU(4, 3, num_layers=2, dropout=0.4, batch_first=True),
    "attention": SelfAttention,
    "transformer": lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.4, batch_first=True),
}


@pytest.mark.parametrize("kind", DROPPING)
@pytest.mark.parametrize("training", [True, False])
def test_dropout_against_a_direct_loop(kind, training, inputs):
    net = made(DROPPING[kind]).train(training)
    x = inputs if kind in ("units", "channels", "alpha") else inputs[:6].view(3, 2, 4)
    outputs = dropout_outputs(net, x, samples=8, seed=3)
    draws = [o[0] if isinstance(o, tuple) else o for o in outputs]
    found = br.predict(net, x, samples=8, generator=seeded(3))
    assert_direct(found, draws)
    assert (found.epistemic > 1e-5).any()
    assert all(layer.training is training for layer in net.modules())


@pytest.mark.parametrize("training", [True, False])
def test_normalisation_is_that_of_evaluation_while_dropout_is_on(dropout_net, inputs, training):
    first, norm, dropout, last = dropout_net.train(training)
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    found = br.predict(dropout_net, inputs, samples=6, generator=seeded(3))
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())
    with torch.no_grad():
        features = (first(inputs) - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
        features = features * norm.weight + norm.bias
    behind = nn.Sequential(dropout, last)
    assert_direct(found, dropout_outputs(behind, features, samples=6, seed=3))


def test_a_module_without_dropout_is_its_own_evaluation(inputs):
    net = made(lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.0))).train()
    found = br.predict(net, inputs, samples=1)
    assert net[1].num_batches_tracked == 0
    assert_direct(found, [net.eval()(inputs).detach()])


def test_draws_that_would_all_be_the_same_are_refused(inputs):
    with pytest.raises(ConfigError, match="nothing in this Linear is random, so 2 draws"):
        br.predict(nn.Linear(4, 3), inputs, samples=2)
    with pytest.raises(ConfigError, match=r"GRU.*samples=1"):
        br.predict(nn.GRU(4, 3, num_layers=2), inputs)


@pytest.mark.parametrize("kind", ["net", "dropout_net"])
def test_one_draw_leaves_nothing_epistemic(kind, inputs, request):
    found = br.predict(request.getfixturevalue(kind), inputs, samples=1)
    assert not found.epistemic.any()
    assert torch.equal(found.total, found.aleatoric)
    assert (found.total > 0).all()


def test_draws_that_hardly_differ_leave_next_to_nothing_epistemic(inputs):
    make = lambda: br.Bayesian(nn.Linear(4, 5), sigma_init=1e-7, min_sigma=1e-9)  # noqa: E731
    net = made(make)
    found = br.predict(net, inputs, samples=11)
    assert (found.epistemic >= 0).all()
    assert found.epistemic.max() < 1e-6
    torch.testing.assert_close(found.mean, net.module(inputs).softmax(-1).detach())


@pytest.mark.parametrize("kind", ["net", "dropout_net"])
def test_the_generator_decides_alone(kind, inputs, request):
    net = request.getfixturevalue(kind)
    before = torch.get_rng_state()
    one = br.predict(net, inputs, samples=5, generator=seeded(4))
    assert torch.equal(torch.get_rng_state(), before)
    torch.randn(3)
    other = br.predict(net, inputs, samples=5, generator=seeded(4))
    assert torch.equal(one.mean, other.mean)
    assert torch.equal(one.epistemic, other.epistemic)
    different = br.predict(net, inputs, samples=5, generator=seeded(5))
    assert not torch.allclose(one.mean, different.mean)
    generator = seeded(4)
    first, second = (br.predict(net, inputs, samples=5, generator=generator) for _ in range(2))
    assert torch.equal(one.mean, first.mean)
    assert not torch.allclose(first.mean, second.mean)


@pytest.mark.parametrize("kind", ["net", "dropout_net"])
def test_without_a_generator_torch_is_asked(kind, inputs, request):
    net = request.getfixturevalue(kind)
    with torch.random.fork_rng():
        torch.manual_seed(6)
        first, second = (br.predict(net, inputs, samples=3).mean for _ in range(2))
        torch.manual_seed(6)
        again = br.predict(net, inputs, samples=3).mean
    assert torch.equal(first, again)
    assert not torch.allclose(first, second)


def failing_at_third(module):
    def fail(output):
        if net.calls == 3:
            raise RuntimeError("midway")
        return output

    net = Through(module, fail)
    return net


@pytest.mark.parametrize("bayesian", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_every_layer_is_left_in_its_mode(dropout_net, inputs, bayesian, fails):
    inner = failing_at_third(dropout_net)
    net = br.Bayesian(inner, sigma_init=0.1) if bayesian else inner
    for training in (True, False):
        net.train(training)
        dropout_net[1].train(not training)
        before = modes(net)
        assert len(set(before.values())) == 2
        seen = torch.get_rng_state()
        inner.calls = 0
        if fails:
            with pytest.raises(RuntimeError, match="midway"):
                br.predict(net, inputs, samples=5, generator=seeded(0))
        else:
            br.predict(net, inputs, samples=2, generator=seeded(0))
        assert inner.calls == (3 if fails else 2)
        assert modes(net) == before
        assert torch.equal(torch.get_rng_state(), seen)


def test_dropout_inside_a_bayesian_is_off(dropout_net, inputs):
    net = br.Bayesian(dropout_net, sigma_init=0.1).train()
    found = br.predict(net, inputs, samples=4, generator=seeded(2))
    assert_direct(found, posterior_outputs(net.eval(), inputs, samples=4, seed=2))


@pytest.mark.parametrize("bayesian", [True, False])
def test_classes_that_are_ruled_out(inputs, bayesian):
    masked = torch.tensor([False, True, False, False, True])
    layers = nn.Sequential(nn.Dropout(0.3), nn.Linear(4, 5))

    def make(value):
        inner = Through(made(lambda: copy.deepcopy(layers)), lambda o: o.masked_fill(masked, value))
        return br.Bayesian(inner, sigma_init=0.5) if bayesian else inner

    net = make(-math.inf)
    found = br.predict(net, inputs, samples=6, generator=seeded(2))
    for part in (found.total, found.aleatoric, found.epistemic):
        assert part.isfinite().all()
    assert not found.mean[:, masked].any()
    # Far below all others, instead of -inf, which Categorical does not take.
    outputs = posterior_outputs if bayesian else dropout_outputs
    low = make(-1e4).eval()
    low.load_state_dict(net.state_dict())
    assert_direct(found, outputs(low, inputs, samples=6, seed=2))


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
def test_short_logits_are_averaged_in_single_precision(net, inputs, dtype):
    short = br.Bayesian(Through(net.module, lambda output: output.to(dtype)), sigma_init=0.8)
    found = br.predict(short, inputs, samples=4, generator=seeded(2))
    assert found.mean.dtype == found.total.dtype == torch.float
    assert_direct(found, posterior_outputs(short, inputs, samples=4, seed=2))


@pytest.mark.parametrize("bayesian", [True, False])
def test_double_precision_is_kept(inputs, bayesian):
    net = made(lambda: nn.Sequential(nn.Dropout(0.3), nn.Linear(4, 5)).double())
    net = br.Bayesian(net, sigma_init=0.8) if bayesian else net
    outputs = posterior_outputs if bayesian else dropout_outputs
    x = inputs.double()
    found = br.predict(net.eval(), x, samples=5, generator=seeded(2))
    assert found.mean.dtype == found.total.dtype == torch.double
    assert_direct(found, outputs(net, x, samples=5, seed=2), rtol=1e-12, atol=1e-13)


def tensor_bytes():
    """The memory of all tensors that Python knows of."""
    everything = (t for t in gc.get_objects() if type(t) is torch.Tensor)
    tensors = (t for t in everything if t.layout is torch.strided)
    # Tests that compile a step leave traced tensors behind, which have a storage without memory.
    real = (tensor for tensor in tensors if _is_real(tensor))
    storages = (tensor.untyped_storage() for tensor in real)
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def _is_real(tensor):
    try:
        tensor.untyped_storage().data_ptr()
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("head", [None, br.Regression(noise=0.1), br.Regression(log_variance=True)])
@pytest.mark.parametrize("kind", ["net", "dropout_net"])
def test_memory_does_not_grow_with_the_draws(kind, head, inputs, request):
    sizes = []

    def weigh(output):
        # Regression merges 64 draws at a time: both numbers are at the same place in between.
        if inner.calls in (140, 140 + 3 * 64):
            sizes.append(tensor_bytes())
        return output.repeat(50, 10)

    net = request.getfixturevalue(kind)
    inner = Through(net.module if kind == "net" else net, weigh)
    net = br.Bayesian(inner, sigma_init=0.1) if kind == "net" else inner
    gc.collect()
    br.predict(net, inputs, samples=140 + 3 * 64, head=head)
    first, second = sizes
    assert second - first < 7 * 50 * 5 * 10 * 4  # one output


class Tagger(nn.Module):
    """Logits [time, batch, classes], and the state to go on from."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 6)
        self.output = nn.Linear(6, 3)

    def forward(self, x, state=None, *, temperature=1.0):
        features, state = self.lstm(x, state)
        return self.output(features) / temperature, state


def test_sequences_with_a_carried_state():
    net = made(lambda: br.Bayesian(Tagger(), sigma_init=0.3)).eval()
    x = torch.randn(5, 2, 4, generator=seeded(1))
    with torch.no_grad():
        _, state = net(torch.randn(3, 2, 4, generator=seeded(2)))
    found = br.predict(net, x, state, samples=4, generator=seeded(3))
    assert found.mean.shape == (5, 2, 3)
    assert found.total.shape == found.aleatoric.shape == found.epistemic.shape == (5, 2)
    outputs = posterior_outputs(net, x, state, samples=4, seed=3)
    assert_direct(found, [logits for logits, _ in outputs])
    fresh = br.predict(net, x, samples=4, generator=seeded(3))
    assert not torch.allclose(fresh.mean[0], found.mean[0])
    named = br.predict(net, x, state=state, samples=4, generator=seeded(3))
    assert torch.equal(named.mean, found.mean)


@pytest.mark.parametrize("bayesian", [True, False])
def test_keyword_inputs_reach_the_network(bayesian):
    inner = made(Tagger)
    inner.lstm = made(lambda: nn.LSTM(4, 6, num_layers=2, dropout=0.4))
    net = br.Bayesian(inner, sigma_init=0.3) if bayesian else inner
    x = torch.randn(5, 2, 4, generator=seeded(1))
    found = br.predict(net, x=x, temperature=4.0, samples=3, generator=seeded(3))
    outputs = (posterior_outputs if bayesian else dropout_outputs)(net.eval(), x, samples=3, seed=3)
    assert_direct(found, [logits / 4.0 for logits, _ in outputs])


def test_a_language_model_with_dropout():
    net = made(lambda: LanguageModel(11, 8, layers=2))
    net.input_dropout.p = net.output_dropout.p = net.recurrent.dropout = 0.3
    words = torch.randint(11, (6, 3), generator=seeded(1))
    found = br.predict(net, words, samples=5, generator=seeded(3))
    outputs = dropout_outputs(net, words, samples=5, seed=3)
    assert_direct(found, [logits for logits, _ in outputs])


@pytest.mark.parametrize("bayesian", [True, False])
def test_numbers_instead_of_classes(inputs, bayesian):
    net = made(lambda: nn.Sequential(nn.Dropout(0.3), nn.Linear(4, 2)))
    net = br.Bayesian(net, sigma_init=0.3).eval() if bayesian else net
    outputs = (posterior_outputs if bayesian else dropout_outputs)(net, inputs, samples=7, seed=3)
    draws = torch.stack(outputs)
    found = br.predict(net, inputs, samples=7, generator=seeded(3), head=br.Regression(noise=0.5))
    assert isinstance(found, br.RegressionPrediction)
    torch.testing.assert_close(found.mean, draws.mean(0))
    torch.testing.assert_close(found.aleatoric, torch.full((7, 2), 0.25))
    torch.testing.assert_close(found.epistemic, draws.var(0, correction=0))
    own = br.predict(
        net, inputs, samples=7, generator=seeded(3), head=br.Regression(log_variance=True)
    )
    torch.testing.assert_close(own.mean, draws.mean(0)[:, :1])
    torch.testing.assert_close(own.aleatoric, draws[..., 1:].exp().mean(0))


def test_nothing_is_recorded_for_gradients(net, inputs):
    recorded = []

    def note(output):
        recorded.append(output.requires_grad)
        return output

    br.predict(br.Bayesian(Through(net.module, note)), inputs.requires_grad_(), samples=2)
    br.predict(Through(nn.Dropout(0.5), note), inputs, samples=2)
    assert recorded == [False] * 4
    assert torch.is_grad_enabled()


def test_empty_batches(net):
    found = br.predict(net, torch.empty(0, 4), samples=3)
    assert found.mean.shape == (0, 5)
    assert found.epistemic.shape == (0,)


def test_mistakes(net, inputs):
    with pytest.raises(ConfigError, match="samples is 0"):
        br.predict(net, inputs, samples=0)
    strange = br.Bayesian(Through(net.module, lambda o: {"logits": o}), sigma_init=0.1)
    with pytest.raises(ConfigError, match="it is a dict"):
        br.predict(strange, inputs)
    with pytest.raises(ConfigError, match="it is a tuple"):
        br.predict(Through(nn.Dropout(0.5), lambda _: ()), inputs)


def test_a_bayesian_part_of_another_network_is_refused(inputs):
    part = br.Bayesian(nn.Linear(4, 5), sigma_init=0.1)
    for whole in (nn.Sequential(part), nn.Sequential(nn.Dropout(0.5), part)):
        with pytest.raises(ConfigError, match="make the whole network one"):
            br.predict(whole, inputs, samples=2)


def test_a_single_number_has_no_classes(inputs):
    class Total(nn.Module):
        def forward(self, x):
            return x.sum()

    with pytest.raises(ConfigError, match="real numbers, with at least one on the last axis"):
        br.predict(Total(), inputs, samples=1)


@pytest.mark.parametrize("change", [lambda x: x.long(), lambda x: x[:, :0]])
def test_outputs_that_are_no_logits(inputs, change):
    with pytest.raises(ConfigError, match="real numbers"):
        br.predict(Through(nn.Linear(4, 5), change), inputs, samples=1)


@pytest.mark.parametrize("samples", [2.0, -1])
def test_whole_draws_only(net, inputs, samples):
    with pytest.raises(ConfigError, match="whole number"):
        br.predict(net, inputs, samples=samples)


def test_an_output_that_changes_its_shape_is_refused(inputs):
    class Growing(nn.Module):
        def __init__(self):
            super().__init__()
            self.dropout, self.calls = nn.Dropout(0.5), 0

        def forward(self, x):
            self.calls += 1
            return self.dropout(x).repeat(1, self.calls)

    with pytest.raises(ConfigError, match="have to be alike"):
        br.predict(Growing(), inputs, samples=3)
