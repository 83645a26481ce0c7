import math
from functools import partial

import pytest
import torch

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.errors import ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import KLScale
from bayesrnn.options import from_toml
from bayesrnn.random import RandomStreams
from bayesrnn.runs.config import resolve
from bayesrnn.runs.load import make_method
from bayesrnn.tasks.captions.config import RECIPES, CaptionsConfig
from bayesrnn.tasks.captions.data import CaptionedImages
from bayesrnn.tasks.captions.likelihood import caption_nll
from bayesrnn.tasks.captions.task import CaptionsTask
from bayesrnn.uncertainty.draws import Draws

TASK = CaptionsTask()
resolve_captions = partial(resolve, CaptionsConfig, RECIPES)


def built(method, captions, **options):
    config = resolve_captions({"method": method, "hidden": 8, "batch_size": 16, **options})
    made = make_method(config, RandomStreams(1))
    net = TASK.build(config, TASK.files(captions), made, RandomStreams(1))
    return config, made, net, TASK.problem(config, captions, made, net, torch.device("cpu"))


@pytest.fixture
def captions(tiny_flickr8k):
    return TASK.load(resolve_captions({"method": "plain"}))


@pytest.mark.parametrize("method", METHODS)
def test_a_configuration_survives_its_file(method):
    config = resolve_captions({"method": method, "seed": 5, "cell": "gru", "layers": 2})
    assert resolve_captions({}, from_toml(config.to_toml(), "test")) == config


def test_the_default_is_the_setting_of_the_experiment():
    config = resolve_captions({"method": "plain"})
    assert (config.data, config.cell, config.hidden, config.layers) == ("flickr8k", "lstm", 512, 1)
    assert (config.optimizer, config.batch_size) == ("adam", 128)
    assert TASK.run_name(config) == "flickr8k-plain-seed1"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": "coco"}, "--data is 'coco'; there are: flickr8k"),
        ({"cell": "elman"}, "--cell is 'elman'; there are: lstm, gru, rnn"),
        ({"hidden": 0}, "--hidden is 0"),
        ({"feature_norm": 0.0}, "--feature-norm is 0"),
    ],
)
def test_mistakes_in_options(given, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        resolve_captions({"method": "plain", **given})


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_a_loss_and_draws(method, captions):
    _, made, net, problem = built(method, captions)
    batch, shares = problem.minibatches(0)[0], KLScale(0.01, 1.0)
    if made.own_optimiser:
        made.optimiser(net, 0.001, shares)
    found = made.loss(net, problem.objective(batch, None), shares)
    found.total.backward()
    assert math.isfinite(found.total.item())
    assert found.state is None
    for network in Draws(made, net, 2, torch.Generator().manual_seed(1)).networks():
        logits, _ = network(batch.inputs, batch.features)
        assert logits.shape == (*batch.inputs.shape, len(captions.vocabulary))


def test_the_loss_is_summed_over_words_and_mean_over_captions(captions):
    _, made, net, problem = built("plain", captions)
    batch = problem.minibatches(0)[1]
    found = problem.objective(batch, None)(made.mean(net)).nll
    expected = 0.0
    for column in range(16):
        length = int(batch.mask[:, column].sum())
        alone = type(batch)(
            batch.features[column][None],
            *(part[:length, column, None] for part in (batch.inputs, batch.targets, batch.mask)),
        )
        expected += caption_nll(made.mean(net), alone).item()
    assert found.item() == pytest.approx(expected / 16, rel=1e-5)


def test_figures_are_by_word(captions):
    problem = built("plain", captions)[3]
    assert problem.loss_metrics(math.log(7))["perplexity"] == pytest.approx(7)
    assert problem.loss_metrics(1e6)["perplexity"] == math.inf


def test_validation_is_by_the_mean_weights(captions):
    _, made, net, problem = built("bbb", captions)
    assert isinstance(net, Bayesian)
    nll = tokens = 0.0
    with torch.no_grad():
        for batch in map(problem.valid.batch, problem.valid.by_length(1)):
            nll += caption_nll(made.mean(net), batch).item()
            tokens += batch.inputs.shape[0]
    found = problem.validate()
    assert found["nll"] == pytest.approx(nll / tokens, rel=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(nll / tokens), rel=1e-5)


def test_all_but_the_bias_of_the_output_is_drawn(captions):
    net = built("bbb", captions)[2]
    recurrent = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0")
    assert set(net.names) == {
        *("image.weight", "image.bias", "embedding.weight", "output.weight"),
        *(f"recurrent.{name}" for name in recurrent),
    }


def test_the_network_is_that_of_the_configuration(captions):
    options = {"hidden": 6, "layers": 2, "cell": "gru", "feature_norm": 3.5, "init": 0.02}
    net = built("plain", captions, **options)[2]
    assert net.feature_norm == 3.5
    assert isinstance(net.recurrent, torch.nn.GRU)
    assert (net.recurrent.hidden_size, net.recurrent.num_layers) == (6, 2)
    assert net.output.weight.shape == (len(captions.vocabulary), 6)
    most = max(weight.abs().max().item() for weight in net.parameters())
    assert 0.019 < most <= 0.02
    by_fan_in = built("plain", captions, **{**options, "init": 0.0})[2]
    assert by_fan_in.embedding.weight.std().item() == pytest.approx(1, abs=0.2)
    assert not by_fan_in.output.bias.any()


def test_every_member_of_an_ensemble_starts_as_configured(captions):
    net = built("ensemble", captions, init=0.02, base="plain", members=2)[2]
    embeddings = [weight for name, weight in net.named_parameters() if "embedding" in name]
    assert len(embeddings) == 2
    for weight in embeddings:
        assert 0.018 < weight.abs().max().item() <= 0.02


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_where_the_posterior_starts_in_each_layer(captions, cell):
    of_prior = {"recurrent": (0.25, 0.5)}
    given = {"prior": "gaussian", "prior_sigma1": 0.4, "sigma_scale": 1.0}
    net = built("bbb", captions, cell=cell, layers=2, **given)[2]
    spreads = net.sigmas()
    assert len(spreads) > 6
    for name, sigma in spreads.items():
        low, high = (0.4 * share for share in of_prior.get(name.split(".")[0], (0.5, 1.0)))
        assert low * 0.999 <= sigma.min().item() < low * 1.4, name
        assert high * 0.7 < sigma.max().item() <= high * 1.001, name


@pytest.mark.parametrize("method", ["variational-dropout", "gaussian-dropout"])
def test_what_a_recurrent_layer_reads_is_masked_once(captions, method):
    rates = {"dropout": 0.3, "recurrent_dropout": 0.2, "embedding_dropout": 0.1}
    net = built(method, captions, **rates)[2]
    assert (net.recurrent.input_rate, net.recurrent.recurrent_rate) == (0.3, 0.2)
    assert (net.input_dropout.p, net.output_dropout.p) == (0.0, 0.3)
    assert net.embedding.word_rate == 0.1
    plain = built("dropout", captions, dropout=0.3)[2]
    assert (plain.input_dropout.p, plain.output_dropout.p) == (0.3, 0.3)


def test_the_fingerprint_is_of_words_captions_and_features(captions):
    def changed(**parts):
        train = CaptionedImages(**{**vars(captions.train), **parts})
        return TASK.fingerprint(type(captions)(**{**vars(captions), "train": train}))

    same = TASK.fingerprint(captions)
    assert changed() == same
    features = captions.train.features.clone()
    features[0, 0] += 1
    assert changed(features=features) != same
    first, *rest = captions.train.captions
    assert changed(captions=(first[::-1], *rest)) != same
