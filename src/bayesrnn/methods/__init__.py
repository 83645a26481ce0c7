"""The ways to train a network, by name."""

from typing import Any

from bayesrnn.methods.base import (
    Bound,
    Bounded,
    Hints,
    Method,
    MinibatchLoss,
    Network,
    Objective,
    Outcome,
    Shares,
    option,
)
from bayesrnn.methods.bbb import BayesByBackprop
from bayesrnn.methods.dropout import Dropout
from bayesrnn.methods.plain import Plain
from bayesrnn.methods.sharpened import Sharpened

#: The registry: a new method is one file and one line here.
METHODS: dict[str, type[Method[Any]]] = {
    method.name: method
    for method in (
        Plain,
        Dropout,
        BayesByBackprop,
        Sharpened,
    )
}

__all__ = [
    "METHODS",
    "Bound",
    "Bounded",
    "Hints",
    "Method",
    "MinibatchLoss",
    "Network",
    "Objective",
    "Outcome",
    "Shares",
    "option",
]
