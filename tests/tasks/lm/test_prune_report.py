"""What pruning costs, in a terminal and on a page."""

import base64
import math
import re
import struct
import zlib

import numpy as np
import pytest
import torch

from bayesrnn.compression.patterns import matrices, patterns
from bayesrnn.runs.pruning.report import block_means, grey_png, pruning_page, pruning_text
from bayesrnn.runs.pruning.results import Curve, KeptQuality, Measured, PrunedRun


def curve(order, *perplexities):
    fractions = (0.0, 0.5, 0.999)
    rows = zip(fractions, perplexities, strict=True)
    return Curve(order, tuple(Measured(f, round(f * 1000), math.log(p)) for f, p in rows))


@pytest.fixture
def kept():
    masks = {"recurrent.weight": torch.ones(30, 30), "out<b>": torch.ones(4, 20)}
    masks = {name: mask.bool() for name, mask in masks.items()}
    masks["recurrent.weight"][:12] = False
    masks["out<b>"][:, :7] = False
    masks["bias"] = torch.tensor([True] * 13 + [False] * 7)
    return masks


@pytest.fixture
def make(kept):
    def make(**changes):
        values = {
            "name": "mine",
            "path": "runs/mine",
            "method": "bbb",
            "data": "ptb",
            "settings": "lstm 1x30, seed 1",
            "split": "valid",
            "streams": 20,
            "step": 1234,
            "seed": 7,
            "only": (),
            "per_tensor": False,
            "weights": 1000,
            "fixed": 55,
            "curves": (
                curve("signal-to-noise", 100, 101, 5000),
                curve("magnitude", 100, 103, 6000),
                curve("random", 100, 400, 7000),
            ),
            "quality": None,
            "shown_order": "signal-to-noise",
            "shown_fraction": 0.8,
            "shown_dropped": 395,
            "patterns": tuple(patterns(kept)),
        }
        return PrunedRun(**{**values, **changes})

    return make


def test_the_tables_say_everything(make):
    text = pruning_text(make())
    assert max(map(len, text.splitlines())) <= 100
    lines = [line.split() for line in text.splitlines()]
    assert ["50%", "500", "101.00", "103.00", "400.00", "+1.0%"] in lines
    assert ["99.9%", "1", "5000.00", "6000.00", "7000.00", "x", "50.00"] in lines
    assert ["recurrent.weight", "30", "x", "30", "40.0%", "12", "0"] in lines
    assert ["out<b>", "4", "x", "20", "35.0%", "0", "7"] in lines
    flat = " ".join(text.split())
    assert "1,000 weights that can be dropped, and 55 that stay; perplexity 100.00" in flat
    assert "of the 20 weights in vectors (biases), 7 were dropped" in flat
    assert "ranked over the whole network" in flat
    assert "What is left with 39.5% dropped by signal-to-noise" in flat
    assert "largest fraction" not in flat


def test_the_kept_quality_is_said(make):
    found = Measured(0.614, 614, math.log(100.9))
    quality = KeptQuality(0.01, math.log(101), "signal-to-noise", found, ())
    flat = " ".join(pruning_text(make(quality=quality, per_tensor=True)).split())
    assert "within 1% of the full network: 61.4% (614 weights, by signal-to-noise)" in flat
    assert "perplexity 100.90" in flat
    assert "ranked in each tensor of the whole network by itself" in flat


def test_the_matrices_that_may_lose_weights_are_named(make):
    only = ("embedding*", "output*")
    flat = " ".join(pruning_text(make(only=only)).split())
    assert "ranked over embedding* and output*;" in flat
    flat = " ".join(pruning_text(make(only=only, per_tensor=True)).split())
    assert "ranked in each tensor of embedding* and output* by itself;" in flat


def test_a_growth_too_small_to_see_has_no_minus(make):
    text = pruning_text(make(curves=(curve("magnitude", 100, 99.999, 98),)))
    growth = [line.split()[-1] for line in text.splitlines() if re.match(r" +[\d.]+% ", line)]
    assert growth == ["+0.0%", "+0.0%", "-2.0%"]


def test_a_run_without_posterior_has_two_orders(make):
    curves = (curve("magnitude", 100, 102, 300), curve("random", 100, 400, 500))
    text = pruning_text(make(curves=curves, shown_order="magnitude", method="plain"))
    assert "signal-to-noise" not in text
    assert "sigma" not in text
    assert "growth: of the perplexity by magnitude" in text


def test_a_perplexity_beyond_numbers_is_shown_as_missing(make):
    lost = Curve("magnitude", (Measured(0, 0, 1.0), Measured(0.5, 500, 800.0)))
    assert lost.points[1].perplexity == math.inf
    text = pruning_text(make(curves=(lost,)))
    row = next(line for line in text.splitlines() if line.split()[:1] == ["50%"])
    assert row.split()[2] == "-"


def test_the_page_has_a_chart_tables_and_a_picture_of_each_matrix(make, kept, read_page):
    html = pruning_page(make(), matrices(kept))
    page = read_page(html)
    assert "out<b>" in page.text
    assert "out<b>" not in html
    assert "perplexity (log scale)" in page.text
    assert "full network" in page.text
    assert "runs/mine at step 1,234; validation text in 20 streams" in page.text
    assert "30 rows x 30 columns, 40.0% dropped" in page.text
    assert page.tags.count("img") == 2
    assert page.tags.count("svg") == 3
    assert "script" not in page.tags
    sources = [value for name, value in page.attributes if name == "src"]
    pixels = decoded(base64.b64decode(sources[0].removeprefix("data:image/png;base64,")))
    assert pixels.shape == (30, 30)
    assert (pixels[:12] == 255).all()  # dropped is white
    assert (pixels[12:] == 0).all()
    assert re.search(r'<img [^>]*width="300" height="300"', html)  # small ones are enlarged


def decoded(png):
    """The pixels of a grey PNG, by the rules of the format."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, place = {}, 8
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        kind, data = png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
        (checksum,) = struct.unpack(">I", png[place + 8 + length : place + 12 + length])
        assert checksum == zlib.crc32(kind + data)
        chunks[kind] = data
        place += 12 + length
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, colour, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, colour, rest) == (8, 0, [0, 0, 0])
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not lines[:, 0].any()
    return lines[:, 1:]


def test_a_png_holds_the_numbers():
    values = np.array([[0.0, 1.0, 0.5], [0.2, 0.8, 0.0]])
    assert decoded(grey_png(values)).tolist() == [[0, 255, 128], [51, 204, 0]]


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (7, 5), (9, 11), (10, 40)])
def test_block_means_by_hand(rows, columns):
    values = np.random.default_rng(1).random((rows, columns)) < 0.3
    found = block_means(values, 4, 6)
    down, across = math.ceil(rows / 4), math.ceil(columns / 6)
    assert found.shape == (math.ceil(rows / down), math.ceil(columns / across))
    assert found.shape[0] <= 4
    assert found.shape[1] <= 6
    for i, j in np.ndindex(found.shape):
        block = values[i * down : (i + 1) * down, j * across : (j + 1) * across]
        assert found[i, j] == pytest.approx(block.mean())


def test_a_large_matrix_says_what_a_point_means(make):
    masks = {"w": torch.rand(700, 401, generator=torch.Generator().manual_seed(1)) < 0.2}
    html = pruning_page(make(patterns=tuple(patterns(masks))), masks)
    assert "each point is the mean of 3 x 2 weights" in html
    assert "row (means over 7 rows)" in html


def test_a_narrow_matrix_is_made_wide_enough_to_see(make):
    masks = {"w": torch.ones(290, 12).bool()}
    html = pruning_page(make(patterns=tuple(patterns(masks))), masks)
    assert 'width="120" height="290"' in html
