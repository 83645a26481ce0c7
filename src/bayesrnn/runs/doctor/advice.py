"""What to try: settings that a run does not have yet, none of which undoes another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bayesrnn.options import flag
from bayesrnn.runs.doctor.examination import Examination

#: Options of methods that are rates of dropout.
_RATES = ("dropout", "recurrent_dropout", "embedding_dropout", "weight_dropout")
#: The rate of widths that is about as fast as they can learn.
FULL_RATE = 1.0


@dataclass(frozen=True)
class Move:
    """Something to try.

    changes: settings that it raises, +1, or lowers, -1.
    """

    words: str
    changes: Mapping[str, int] = field(default_factory=dict)


class Plan:
    """What has been advised of a run; what would undo a part of it is left out from then on."""

    def __init__(self) -> None:
        self._changes: dict[str, int] = {}

    def add(self, moves: Sequence[Move], otherwise: str) -> str:
        """Those of the moves that go with the plan, in words; `otherwise` where none does."""
        fitting = [move for move in moves if self._goes_with(move)]
        for move in fitting:
            self._changes.update(move.changes)
        return alternatives([move.words for move in fitting]) or otherwise

    def _goes_with(self, move: Move) -> bool:
        return all(self._changes.get(name, way) == way for name, way in move.changes.items())


def alternatives(words: Sequence[str]) -> str:
    """One, or the other, or a third."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])}, or {words[-1]}"


def calibrate_command(found: Examination) -> str:
    """What calibrates the step that was examined."""
    checkpoint = "" if found.checkpoint == "best" else f" --checkpoint {found.checkpoint}"
    return f"bayesrnn calibrate {found.path}{checkpoint}"


def faster_widths(found: Examination) -> list[Move]:
    """A rate of the widths of their own, where that can be had and is not."""
    rate = found.settings.options.get("sigma_lr")
    return [Move("--sigma-lr 1", {"sigma_lr": 1})] if rate is not None and rate < FULL_RATE else []


def fitted_prior(found: Examination) -> list[Move]:
    """A prior that fits itself, where that can be had and is not."""
    if found.settings.options.get("prior", "fitted") == "fitted":
        return []
    return [Move("a prior that fits itself (--prior fitted)", {"prior": 1})]


def stronger_prior(found: Examination, way: int) -> list[Move]:
    """More of the prior, or less for a `way` of -1."""
    options = found.settings.options
    if "kl_weight" in options:
        word = "larger" if way > 0 else "lower"
        return [Move(f"a {word} --kl-weight", {"kl_weight": way})]
    if "prior_sigma" in options:
        word = "smaller" if way > 0 else "larger"
        return [Move(f"a {word} --prior-sigma", {"prior_sigma": -way})]
    return []


def dropout_rates(found: Examination, way: int) -> list[Move]:
    """Higher rates of dropout, or lower ones, where there are any."""
    rates = [flag(name) for name in _RATES if found.settings.options.get(name)]
    word = "higher" if way > 0 else "lower"
    return [Move(f"a {word} rate of dropout ({', '.join(rates)})", {"dropout": way})][: len(rates)]


def epochs(way: int) -> list[Move]:
    """More epochs, or fewer."""
    return [Move(f"{'more' if way > 0 else 'fewer'} --epochs", {"epochs": way})]


def averaged_parameters(found: Examination, so: str) -> list[Move]:
    """An average over about an epoch, where there is none, and one would be a network."""
    settings = found.settings
    if settings.average or not settings.can_average:
        return []
    share = float(f"{1 / max(found.minibatches, 10):.1g}")
    return [Move(f"averaged parameters (--average {1 - share:g}){so}", {"average": 1})]


def more_networks(found: Examination) -> list[Move]:
    """An ensemble, or a larger one."""
    if found.method == "ensemble":
        return [Move("more --members", {"members": 1})]
    base = "" if found.settings.own_optimiser else f" --base {found.method}"
    return [Move(f"an ensemble, whose members differ more (--method ensemble{base})")]
