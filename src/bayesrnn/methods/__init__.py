"""The ways to train a network, by name."""

from typing import Any

from bayesrnn.methods.base import (
    Hints,
    Method,
    MinibatchLoss,
    Network,
    Objective,
    Outcome,
    option,
)
from bayesrnn.methods.bbb import BayesByBackprop
from bayesrnn.methods.dropout import Dropout
from bayesrnn.methods.plain import Plain

#: The registry: a new method is one file and one line here.
METHODS: dict[str, type[Method[Any]]] = {
    method.name: method
    for method in (
        Plain,
        Dropout,
        BayesByBackprop,
    )
}

__all__ = [
    "METHODS",
    "Hints",
    "Method",
    "MinibatchLoss",
    "Network",
    "Objective",
    "Outcome",
    "option",
]
