"""The methods to train a network, by name."""

from typing import Any

from bayesrnn.methods.base import Method
from bayesrnn.methods.bbb import BayesByBackprop
from bayesrnn.methods.dropconnect import DropConnect
from bayesrnn.methods.dropout import Dropout
from bayesrnn.methods.ensemble import Ensemble
from bayesrnn.methods.gaussian_dropout import GaussianDropout
from bayesrnn.methods.ivon import Ivon
from bayesrnn.methods.langevin import Psgld, Sgld
from bayesrnn.methods.naive_dropout import NaiveDropout
from bayesrnn.methods.plain import Plain
from bayesrnn.methods.sharpened import Sharpened
from bayesrnn.methods.variational_dropout import VariationalDropout

#: The registry: a new method is one file and one line here.
METHODS: dict[str, type[Method[Any]]] = {
    method.name: method
    for method in (
        Plain,
        Dropout,
        VariationalDropout,
        NaiveDropout,
        GaussianDropout,
        DropConnect,
        BayesByBackprop,
        Sharpened,
        Sgld,
        Psgld,
        Ivon,
        Ensemble,
    )
}
