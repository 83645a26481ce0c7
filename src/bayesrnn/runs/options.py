"""Options: from dataclass fields to the command line, to TOML and back."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass, make_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import tyro

from bayesrnn.errors import ConfigError
from bayesrnn.methods import METHODS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Number = TypeVar("Number", int, float)

_METAVARS = {int: "N", float: "X", str: "NAME", Path: "PATH", tuple[str, ...]: "NAME|PATH ..."}
#: The kinds of values whose type is checked, in words.
_KINDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "the path of a folder",
    tuple[str, ...]: "a text or a list of texts",
}


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


def flag(name: str) -> str:
    """How an option is written on the command line."""
    return "--" + name.replace("_", "-")


def refuse_given(options: Mapping[str, object], meant_for: str) -> None:
    """Refuse options that the user gave, and not None, to runs that they mean nothing for."""
    given = [flag(name) for name, value in options.items() if value is not None]
    if given:
        verb, pronoun = ("is", "it") if len(given) == 1 else ("are", "them")
        raise ConfigError(f"{', '.join(given)} {verb} for {meant_for}; leave {pronoun} out")


def command_line_type(name: str, parts: Iterable[type], description: str) -> type:
    """A dataclass for the command line with the fields of `parts` and every method's options.

    All are None unless given (flags: their default), so that a recipe, a configuration file or a
    resumed run can tell what the user asked for from what is left to them.
    """
    made: dict[str, tuple[str, Any, Any]] = {}
    for item, hint in (pair for part in parts for pair in _hinted_fields(part)):
        if item.name != "options":
            made[item.name] = _argument(item, hint, "")
    for item, hint, owners in _method_options().values():
        made[item.name] = _argument(item, hint, f"[{', '.join(owners)}] ", by_recipe=True)
    return make_dataclass(name, made.values(), namespace={"__doc__": description}, frozen=True)


def given_options(parsed: Any) -> dict[str, Any]:
    """The options that the user gave."""
    values = {item.name: (getattr(parsed, item.name), item.default) for item in fields(parsed)}
    return {name: value for name, (value, default) in values.items() if value != default}


def _argument(
    item: "Field[Any]", hint: Any, prefix: str, by_recipe: bool = False
) -> tuple[str, Any, Any]:
    default = _default(item)
    if by_recipe and default:
        default = f"{default[:-1]}, or by recipe)"
    shown = f"{prefix}{item.metadata['help']}{default}"
    choices = _choices(item, hint)
    if hint is bool:
        argument = tyro.conf.arg(help=shown, help_behavior_hint="")
        return item.name, Annotated[bool, argument], field(default=item.default)
    if choices:
        hint, metavar = Literal.__getitem__(choices), f"{{{','.join(choices)}}}"
    else:
        kinds = [kind for kind in (hint, *get_args(hint)) if kind in _METAVARS]
        metavar = _METAVARS[kinds[0]]
    argument = tyro.conf.arg(help=shown, help_behavior_hint="", metavar=metavar)
    optional: Any = Annotated[hint | None, argument]
    return item.name, optional, field(default=None)


def method_options(method: str, values: Mapping[str, Any], recipe: Mapping[str, Any]) -> Any:
    """The options dataclass of a method from `values`, with the recipe's defaults.

    An option that only other methods have is an error, not silence.
    """
    options_type = METHODS[method].options_for(values)
    own = [item.name for item in fields(options_type)]
    for name in values:
        if name not in own:
            owners = option_owners(name)
            has = ", ".join(map(flag, own)) if own else "none"
            known = f"it belongs to {', '.join(owners)}" if owners else "no method has it"
            raise ConfigError(
                f"the method {method} has no option {flag(name)}: {known}; "
                f"{method}'s own options: {has}"
            )
    made = {**recipe, **values}
    _check_types(options_type, made)
    return options_type(**made)


def option_owners(name: str) -> list[str]:
    """The methods that have an option of this name."""
    found = _method_options().get(name)
    return found.owners if found else []


def check_types(config: Any) -> None:
    """Refuse values of the wrong kind, as a configuration file may hold them."""
    _check_types(type(config), vars(config))


def _check_types(dataclass: type, values: Mapping[str, Any]) -> None:
    for item, hint in _hinted_fields(dataclass):
        if item.name not in values:
            continue
        value, choices = values[item.name], _choices(item, hint)
        members = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        kinds = [kind for kind in members if kind in _KINDS]
        left_out = value is None and NoneType in members
        if choices and value not in choices:
            expected = f"one of {', '.join(choices)}"
        elif kinds and not left_out and not _is_kind(value, kinds[0]):
            expected = _KINDS[kinds[0]]
        else:
            continue
        raise ConfigError(f"{flag(item.name)} is {value!r}; it has to be {expected}")


def _choices(item: "Field[Any]", hint: Any) -> tuple[str, ...]:
    """The texts that an option can be, if it cannot be any."""
    literal = get_args(hint) if get_origin(hint) is Literal else ()
    choices: tuple[str, ...] = item.metadata["choices"] or literal
    return choices


def _is_kind(value: Any, kind: Any) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is Path:
        return isinstance(value, str | Path)
    if kind in (bool, int, str):
        return type(value) is kind
    several = value if isinstance(value, list | tuple) else [value]
    return all(isinstance(item, str) for item in several)


def to_toml(values: Mapping[str, Any]) -> str:
    """Flat values and tables of flat values as TOML; None is left out."""
    lines = _toml_lines({n: value for n, value in values.items() if not _table(value)})
    for name, table in values.items():
        if _table(table):
            lines += ["", f"[{name}]", *_toml_lines(table)]
    return "\n".join(lines) + "\n"


def from_toml(text: str, where: str) -> dict[str, Any]:
    """Read what `to_toml` writes, or what a user wrote like it."""
    try:
        values: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where} is not a TOML file: {error}") from None
    return values


def _toml_lines(values: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {_toml(value)}" for name, value in values.items() if value is not None]


def _table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | Path):
        escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
        controls = {ord(c): f"\\u{ord(c):04x}" for c in map(chr, [*range(32), 127])}
        return f'"{escaped.translate(controls)}"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    raise TypeError(f"no TOML for {value!r}")


def _hinted_fields(dataclass: type) -> Iterable[tuple["Field[Any]", Any]]:
    """The fields with their types; a class' own come before those that it inherited."""
    hints = get_type_hints(dataclass)
    bases = [base for base in dataclass.__bases__ if is_dataclass(base)]
    inherited = {item.name for base in bases for item in fields(base)}
    ordered = sorted(fields(dataclass), key=lambda item: item.name in inherited)
    return ((item, hints[item.name]) for item in ordered)


class _MethodOption(NamedTuple):
    field: "Field[Any]"
    hint: Any
    owners: list[str]


def _method_options() -> dict[str, _MethodOption]:
    """The options of all methods by name, each with the methods that have it."""
    found: dict[str, _MethodOption] = {}
    for name, method in METHODS.items():
        for item, hint in _hinted_fields(method.options_type):
            found.setdefault(item.name, _MethodOption(item, hint, [])).owners.append(name)
    return found


def _default(item: "Field[Any]") -> str:
    """The default in words, unless there is none or it goes without saying."""
    value = item.default
    if value is MISSING or value is None or value is False:
        return ""
    if value is True:
        value = "yes"
    elif isinstance(value, float):
        value = f"{value:.4g}"
    elif isinstance(value, tuple):
        value = " ".join(map(str, value))
    return f" (default: {value})"
