"""The public face: every name that it promises is there, and no other way in is needed."""

import subprocess
import sys

import pytest

import bayesrnn


def test_every_public_name_is_there():
    assert len(bayesrnn.__all__) == len(set(bayesrnn.__all__)) > 10
    for name in bayesrnn.__all__:
        assert getattr(bayesrnn, name) is not None
    assert dir(bayesrnn) == sorted(bayesrnn.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = bayesrnn.nothing


def test_star_imports_give_the_same():
    code = "from bayesrnn import *\nprint(Bayesian.__name__, predict.__module__)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["Bayesian", "bayesrnn.uncertainty.predict"]


def test_importing_the_package_does_not_import_torch():
    code = "import sys, bayesrnn\nassert 'torch' not in sys.modules\nprint(bayesrnn.metrics.brier)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "function brier" in ran.stdout
