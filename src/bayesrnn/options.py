"""Options: dataclass fields that are checked once, shown by `--help`, and saved as TOML.

A dataclass of options derives from `CheckedOptions`, and its fields are made by `option`: methods,
the configurations of tasks and the commands of the program all state what they take in this form.
"""

import math
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import tomli_w

from bayesrnn.errors import ConfigError
from bayesrnn.untrusted import LARGEST

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: The default of an option that has to be given.
REQUIRED: Any = MISSING

#: The square of a setting has to be a number of 32 bits, too.
_LARGEST_FLOAT = 1e18

#: Tables and lists within each other, characters, and dots, in a file of options. Keys with many
#: dots take the time of their square to read.
_DEEPEST, _LONGEST, _MOST_DOTS = 10, 1_000_000, 10_000

#: How messages name what can be given: one value of a kind, and a list of them.
_KINDS: dict[type, tuple[str, str]] = {
    bool: ("true or false", "a list of true or false"),
    int: ("a whole number", "a list of whole numbers"),
    float: ("a number", "a list of numbers"),
    str: ("a text", "a text or a list of texts"),
    Path: ("the path of a file or folder", "a path or a list of paths"),
}


class Added(int):
    """A number that is meant in addition to what there is, written +3."""


#: How tables show the value of an option, from the values of all options that are known.
Wording = Callable[[Mapping[str, Any]], str]


def option(
    default: Any,
    help: str,
    *,
    gt: float | None = None,
    ge: float | None = None,
    lt: float | None = None,
    le: float | None = None,
    choices: Collection[str] = (),
    zero: str = "",
    shown: str | Wording = "",
    shown_default: bool = True,
    commas: bool = False,
    repeated: bool = False,
    positional: bool = False,
    flag: str = "",
    metavar: str = "",
    adds: bool = False,
) -> Any:
    """A field of a dataclass of options; `REQUIRED` is the default of one that has to be given.

    help: the line that `--help` shows, where the default and the range are added.
    gt, ge, lt, le: a number has to be above, at least, below, at most this; and finite.
    choices: the texts that it can be.
    zero: what 0 stands for, in the message that refuses less.
    shown: how tables of runs say it, such as "dropout {}"; nothing of an option that is None.
    shown_default: whether tables say it where it is as by default.
    commas: a list is written with commas between; repeated: by giving the option several times.
    positional: written without its name. flag: the name, where it is not the field's.
    metavar: what stands for the value in `--help`.
    adds: +N on the command line is `Added`: N more than there are.
    """
    about = {**locals(), "choices": tuple(choices)}
    return field(default=about.pop("default"), metadata=about)


@dataclass(frozen=True, kw_only=True)
class Option:
    """All that is known of an option.

    kind: bool, int, float, str or Path: of its value, or of the items of a list.
    default: `REQUIRED` if it has to be given. (None also stands for what a recipe gives.)
    is_list: its value is a tuple. optional: None is a value as well.
    flag: how it is written on the command line. The rest: see `option`.
    """

    name: str
    kind: type
    default: Any
    is_list: bool
    optional: bool
    help: str
    gt: float | None
    ge: float | None
    lt: float | None
    le: float | None
    choices: tuple[str, ...]
    zero: str
    shown: str | Wording
    shown_default: bool
    commas: bool
    repeated: bool
    positional: bool
    flag: str
    metavar: str
    adds: bool

    @property
    def range(self) -> str:
        """The numbers that are allowed, as text; empty where all are."""
        zero = f" ({self.zero})" * bool(self.zero)
        low = self.gt if self.ge is None else self.ge
        high = self.lt if self.le is None else self.le
        if low is None:
            return "" if high is None else f"{'below' if self.le is None else 'at most'} {high:g}"
        if high is None:
            return f"above {low:g}" if self.ge is None else f"{low:g}{zero} or more"
        if self.ge is not None and self.le is not None:
            return f"from {low:g}{zero} to {high:g}"
        if self.ge is None and self.le is None:
            return f"between {low:g} and {high:g}"
        least = f"above {low:g}" if self.ge is None else f"at least {low:g}{zero}"
        return f"{least} and {'below' if self.le is None else 'at most'} {high:g}"

    def check(self, value: Any) -> Any:
        """The value as the program has it, from a file, the command line or Python; or an error."""
        if value is None and self.optional:
            return None
        if not self.is_list:
            self._require_kind(value, [value])
            self._require_allowed(value, "is")
            return Path(value) if self.kind is Path else value
        items = self._items(value)
        self._require_kind(value, items)
        if self.commas and self.kind is not str and not items:
            raise self._error(f"is empty; give {self._advice()}")
        unknown = [item for item in items if self.choices and item not in self.choices]
        if unknown:
            raise self._error(f"has {', '.join(unknown)}; there are: {', '.join(self.choices)}")
        for item in items:
            self._require_allowed(item, "has")
        return tuple(map(Path, items)) if self.kind is Path else tuple(items)

    def words(self, options: Mapping[str, Any]) -> str:
        """How tables say it, given all options that are known; empty where they do not."""
        value = options.get(self.name)
        if value is None or not self.shown or (not self.shown_default and value == self.default):
            return ""
        return self.shown.format(value) if isinstance(self.shown, str) else self.shown(options)

    def _items(self, value: Any) -> list[Any]:
        if not isinstance(value, str):
            return list(value) if isinstance(value, list | tuple) else [value]
        if not self.commas:
            return [value]
        if self.kind is str:
            names = dict.fromkeys(part.strip() for part in value.split(",") if part.strip())
            if value and not names:
                raise self._error(
                    f"is {value!r}, which has no name; give names with commas between"
                )
            return list(names)
        try:
            return [self.kind(part) for part in value.split(",")]
        except ValueError:
            raise self._error(f"is {value!r}; give {self._advice()}") from None

    def _advice(self) -> str:
        """What to give for a list of numbers."""
        within = f" {self.range}" if None not in (self.ge, self.le) else ""
        kind = _KINDS[self.kind][1].removeprefix("a list of ")
        return f"{kind}{within} with commas between, such as {default_text(self)}"

    def _require_kind(self, value: Any, items: list[Any]) -> None:
        if self.choices and not self.is_list:
            if value not in self.choices:
                raise self._error(f"is {value!r}; there are: {', '.join(self.choices)}")
        elif not all(_is_kind(item, self.kind) for item in items):
            raise self._error(f"is {value!r}; it has to be {_KINDS[self.kind][self.is_list]}")

    def _require_allowed(self, value: Any, verb: str) -> None:
        if self.kind not in (int, float):
            return
        if isinstance(value, int) and abs(value) > LARGEST:
            few = f"{str(value)[:20]}..., " if abs(value) < 10**4000 else ""  # Python shows no more
            raise self._error(f"{verb} {few}a whole number of more than 64 bits")
        finite = not isinstance(value, float) or abs(value) <= _LARGEST_FLOAT
        if finite and not (
            (self.gt is not None and value <= self.gt)
            or (self.ge is not None and value < self.ge)
            or (self.lt is not None and value >= self.lt)
            or (self.le is not None and value > self.le)
        ):
            return
        limit = (
            "" if finite else f"at most {_LARGEST_FLOAT:g}" if math.isfinite(value) else "finite"
        )
        allowed = " and ".join(filter(None, (self.range, limit)))
        each = "it" if verb == "is" else "each"
        raise self._error(f"{verb} {_number(value)}; {each} has to be {allowed}")

    def _error(self, complaint: str) -> ConfigError:
        return ConfigError(f"{self.flag} {complaint}")


@dataclass(frozen=True)
class CheckedOptions:
    """A dataclass of options: what each of them is given is checked when it is made."""

    def __post_init__(self) -> None:
        """Check the options one by one; what two of them say together is a subclass' business."""
        for item in options_of(type(self)):
            object.__setattr__(self, item.name, item.check(getattr(self, item.name)))


def options_of(options_type: type) -> tuple[Option, ...]:
    """The options of a dataclass: what a search over them, or a form, has to know."""
    hints = get_type_hints(options_type)
    return tuple(
        Option(**_described(item, hints[item.name]))
        for item in fields(options_type)
        if "help" in item.metadata
    )


def flag(name: str) -> str:
    """How an option is written on the command line."""
    return "--" + name.replace("_", "-")


def default_text(item: Option) -> str:
    """The default as text; empty if there is none, or if it goes without saying."""
    value = item.default
    if value is MISSING or value is None or value is False or value in ("", ()):
        return ""
    if value is True:
        return "yes"
    if isinstance(value, tuple):
        return ("," if item.commas else " ").join(map(_short, value))
    return _short(value)


def to_toml(values: Mapping[str, Any]) -> str:
    """Values and tables of values as TOML; None is left out."""
    return tomli_w.dumps(_plain(values))


def from_toml(text: str, where: str) -> dict[str, Any]:
    """Read what `to_toml` writes, or what a user wrote like it."""
    if len(text) > _LONGEST or text.count(".") > _MOST_DOTS:
        raise ConfigError(f"{where} is too long for a TOML file of options")
    try:
        values: dict[str, Any] = tomllib.loads(text)
        _require_plain(values)
    except RecursionError:
        raise ConfigError(f"{where} is not a TOML file of options: it is nested too deep") from None
    except ValueError as error:
        raise ConfigError(f"{where} is not a TOML file: {str(error)[:200]}") from None
    return values


def _require_plain(value: Any, depth: int = 0) -> None:
    """Refuse what no option can be, with a `ValueError`."""
    if depth > _DEEPEST:
        raise ValueError("it is nested too deep")
    if isinstance(value, int) and abs(value) > LARGEST:
        raise ValueError("it has a whole number of more than 64 bits")
    items = value.values() if isinstance(value, dict) else value
    for item in items if isinstance(value, dict | list) else ():
        _require_plain(item, depth + 1)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Path) else value


def _described(item: "Field[Any]", hint: Any) -> dict[str, Any]:
    """What a field and its type say about an option."""
    members = get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)
    (member,) = (one for one in members if one is not NoneType)
    is_list = get_origin(member) is tuple
    kind = get_args(member)[0] if is_list else member
    made = {
        **item.metadata,
        "name": item.name,
        "default": item.default,
        "flag": flag(item.metadata["flag"] or item.name),
        "kind": kind,
        "is_list": is_list,
        "optional": NoneType in members,
    }
    if get_origin(kind) is Literal:
        made |= {"kind": str, "choices": get_args(kind)}
    return made


def _is_kind(value: Any, kind: type) -> bool:
    if kind is bool:
        return isinstance(value, bool)
    if kind is Path:
        return isinstance(value, str | Path)
    wanted = (int, float) if kind is float else kind
    return isinstance(value, wanted) and not isinstance(value, bool)


def _number(value: float) -> str:
    """A number as it was given, but short where nothing is lost."""
    short = f"{value:g}" if isinstance(value, float) else str(value)
    return short if float(short) == value else str(value)


def _short(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
