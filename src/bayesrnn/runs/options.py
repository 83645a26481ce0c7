"""Options on the command line: what `option` fields become there, and those of methods."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields, is_dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import tyro

from bayesrnn.errors import ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.options import REQUIRED, Option, default_text, flag, options_of

_METAVARS = {int: "N", float: "X", str: "NAME", Path: "PATH"}

Number = TypeVar("Number", int, float)
Given = dict[str, Any]


class _Argument(NamedTuple):
    """An option as tyro takes it; its default stands for "not given"."""

    name: str
    hint: Any
    default: Any


def number_list(
    text: str, kind: Callable[[str], Number], name: str, advice: str
) -> tuple[Number, ...]:
    """Numbers as the user writes them, with commas between; `advice` says what to give."""
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"{flag(name)} is {text!r}; give {advice}") from None


def name_list(text: str, name: str) -> tuple[str, ...]:
    """Names as the user writes them for an option, with commas between, each once."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if text and not names:
        raise ConfigError(
            f"{flag(name)} is {text!r}, which has no name; give names with commas between"
        )
    return names


def refuse_given(options: Mapping[str, object], meant_for: str) -> None:
    """Refuse options that the user gave, and not None, to runs that they mean nothing for."""
    given = [flag(name) for name, value in options.items() if value is not None]
    if given:
        verb, pronoun = ("is", "it") if len(given) == 1 else ("are", "them")
        raise ConfigError(f"{', '.join(given)} {verb} for {meant_for}; leave {pronoun} out")


def command_line_type(name: str, parts: Iterable[type], description: str) -> type:
    """A dataclass for the command line with the options of `parts` and of every method.

    All are None unless given (flags: their default), so that a recipe, a configuration file or a
    resumed run can tell what the user asked for from what is left to them.
    """
    made = _arguments(parts)
    for item, owners in _method_options().values():
        made[item.name] = _argument(item, f"[{', '.join(owners)}] ", by_recipe=True)
    stated = [(one.name, one.hint, field(default=one.default)) for one in made.values()]
    return make_dataclass(name, stated, namespace={"__doc__": description}, frozen=True)


def given_options(parsed: Any) -> Given:
    """The options that the user gave."""
    values = {item.name: (getattr(parsed, item.name), item.default) for item in fields(parsed)}
    return {name: value for name, (value, default) in values.items() if value != default}


def _arguments(parts: Iterable[type]) -> dict[str, _Argument]:
    """The options of dataclasses; of one that two of them have, the first is shown."""
    made: dict[str, _Argument] = {}
    for item in (item for part in parts for item in _own_first(part)):
        made.setdefault(item.name, _argument(item))
    return made


def _own_first(options_type: type) -> list[Option]:
    """The options of a dataclass; its own come before those that it inherited."""
    bases = [base for base in options_type.__bases__ if is_dataclass(base)]
    inherited = {item.name for base in bases for item in fields(base)}
    return sorted(options_of(options_type), key=lambda item: item.name in inherited)


def _argument(item: Option, prefix: str = "", by_recipe: bool = False) -> _Argument:
    spelt: dict[str, Any] = {"help": prefix + _help(item, by_recipe), "help_behavior_hint": ""}
    if item.flag:
        spelt["name"] = item.flag
    if item.kind is bool:
        return _Argument(item.name, Annotated[bool, tyro.conf.arg(**spelt)], item.default)
    hint: Any = item.kind
    metavar = _METAVARS[item.kind]
    if item.commas:
        hint, metavar = str, f"{metavar},{metavar},..."
    elif item.choices:
        hint, metavar = Literal.__getitem__(item.choices), f"{{{','.join(item.choices)}}}"
    elif item.is_list:
        hint = tuple[hint, ...]
    spelt["metavar"] = item.metavar or metavar
    if item.positional or item.repeated:
        mark: Any = tyro.conf.Positional if item.positional else tyro.conf.UseAppendAction
        hint = mark[hint]
    marker = tyro.conf.arg(**spelt)
    if item.is_list and (item.positional or item.repeated):
        return _Argument(item.name, Annotated[hint, marker], ())
    if item.default is REQUIRED:
        return _Argument(item.name, Annotated[hint, marker], REQUIRED)
    return _Argument(item.name, Annotated[hint | None, marker], None)


def _help(item: Option, by_recipe: bool) -> str:
    """The line of help, with the range where there are two ends to it, and the default."""
    has_ends = any(
        None not in (low, high) for low in (item.gt, item.ge) for high in (item.lt, item.le)
    )
    default = default_text(item)
    if default:
        default = f"default: {default}" + ", or by recipe" * by_recipe
    added = "; ".join(filter(None, (item.range * has_ends, default)))
    return f"{item.help} ({added})" if added else item.help


def method_options(method: str, values: Mapping[str, Any], recipe: Mapping[str, Any]) -> Any:
    """The options dataclass of a method from `values`, with the recipe's defaults.

    An option that only other methods have is an error, not silence. A recipe may be that of
    another method, which has further options.
    """
    options_type = METHODS[method].options_for(values)
    own = [item.name for item in options_of(options_type)]
    for name in values:
        if name not in own:
            owners = option_owners(name)
            has = ", ".join(map(flag, own)) if own else "none"
            known = f"it belongs to {', '.join(owners)}" if owners else "no method has it"
            raise ConfigError(
                f"the method {method} has no option {flag(name)}: {known}; "
                f"{method}'s own options: {has}"
            )
    by_recipe = {name: value for name, value in recipe.items() if name in own}
    return options_type(**{**by_recipe, **values})


def option_owners(name: str) -> list[str]:
    """The methods that have an option of this name."""
    return _method_options().get(name, _Owned(None, [])).owners


class _Owned(NamedTuple):
    option: Any
    owners: list[str]


def _method_options() -> dict[str, _Owned]:
    """The options of all methods by name, each with the methods that have it."""
    found: dict[str, _Owned] = {}
    for name, method in METHODS.items():
        for item in _own_first(method.options_type):
            found.setdefault(item.name, _Owned(item, [])).owners.append(name)
    return found
