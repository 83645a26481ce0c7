"""Options on the command line: what `option` fields become there, and those of methods."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import tyro

from bayesrnn.errors import ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.options import REQUIRED, Added, CheckedOptions, Option, default_text, flag, options_of

_METAVARS = {int: "N", float: "X", str: "NAME", Path: "PATH"}

Options = TypeVar("Options", bound=CheckedOptions)
Given = dict[str, Any]


class _Argument(NamedTuple):
    """An option as tyro takes it; its default stands for "not given"."""

    item: Option
    hint: Any
    default: Any

    @property
    def name(self) -> str:
        """The name of the option."""
        return self.item.name


def command_line_type(name: str, parts: Sequence[type], description: str) -> type:
    """A dataclass for the command line with the options of `parts` and of every method.

    All are None unless given (flags: their default), so that a recipe, a configuration file or a
    resumed run can tell what the user asked for from what is left to them.
    """
    made = _arguments(parts)
    own = {item.name: item for part in parts for item in _own_first(part)}
    for item, owners in _method_options().values():
        prefix = f"[{', '.join(owners)}] "
        if item.name in own:  # of such a name, the values of both are taken (`resolve`)
            same = own[item.name]
            choices = f"{', '.join(same.choices)}: " if same.choices else ""
            prefix = f"{choices}{_help(same, by_recipe=False)}; {prefix}"
        made[item.name] = _argument(item, prefix, by_recipe=True)
    stated = [(one.name, one.hint, field(default=one.default)) for one in made.values()]
    options = tuple(one.item for one in made.values())
    namespace = {"__doc__": description, "options": options}
    return make_dataclass(name, stated, namespace=namespace, frozen=True)


def given_options(parsed: Any) -> Given:
    """The options that the user gave."""
    values = {item.name: (getattr(parsed, item.name), item.default) for item in fields(parsed)}
    return {name: value for name, (value, default) in values.items() if value != default}


def command(
    options_type: type[Options],
) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Make a function of a dataclass of options a command of the program."""

    def decorate(function: Callable[[Options], None]) -> Callable[..., None]:
        return _command(function, [options_type], lambda given: function(options_type(**given)))

    return decorate


def command_of_parts(
    *parts: type[CheckedOptions], owned: Mapping[str, type[CheckedOptions]] | None = None
) -> Callable[[Callable[[Given], None]], Callable[..., None]]:
    """As `command`, with the options of several dataclasses, of which runs may want only some.

    The function is handed what the user gave, of which it will `take` what it needs.

    owned: options that `--help` says the owner of, here by its name.
    """
    return lambda function: _command(function, parts, function, owned or {})


def take(options_type: type[Options], given: Given) -> Options:
    """The options of a dataclass, taken out of what the user gave."""
    names = [item.name for item in options_of(options_type) if item.name in given]
    return options_type(**{name: given.pop(name) for name in names})


def refuse_others(owned: Mapping[str, type], given: Mapping[str, Any]) -> None:
    """Refuse what is left of the options that the user gave: they are for runs of other tasks."""
    for task, options_type in owned.items():
        names = [item.flag for item in options_of(options_type) if item.name in given]
        if names:
            verb, pronoun = ("is", "it") if len(names) == 1 else ("are", "them")
            raise ConfigError(
                f"{', '.join(names)} {verb} for runs of `bayesrnn train {task}`; "
                f"leave {pronoun} out"
            )


def _command(
    function: Callable[..., None],
    parts: Iterable[type],
    call: Callable[[Given], None],
    owned: Mapping[str, type] | None = None,
) -> Callable[..., None]:
    """A function with an argument for each option, as tyro reads it."""
    arguments = _arguments(parts)
    for item, owners in _owned_options(owned or {}).values():
        arguments[item.name] = _argument(item, f"[{', '.join(owners)}] ")

    def run(**values: Any) -> None:
        if (values.get("threads") or 0) > 0:
            import torch

            torch.set_num_threads(values["threads"])
        call({n: value for n, value in values.items() if value != arguments[n].default})

    stated: Any = run
    stated.options = tuple(one.item for one in arguments.values())
    stated.__name__, stated.__doc__ = function.__name__, function.__doc__
    stated.__annotations__ = {one.name: one.hint for one in arguments.values()}
    kind = inspect.Parameter.KEYWORD_ONLY
    stated.__signature__ = inspect.Signature(
        [inspect.Parameter(one.name, kind, default=one.default) for one in arguments.values()]
    )
    return run


def _arguments(parts: Iterable[type]) -> dict[str, _Argument]:
    """The options of dataclasses; of one that two of them have, the first is shown."""
    made: dict[str, _Argument] = {}
    for item in (item for part in parts for item in _own_first(part)):
        made.setdefault(item.name, _argument(item))
    return made


def _own_first(options_type: type) -> list[Option]:
    """The options of a dataclass; its own come before those that it inherited."""
    stated = (name for base in options_type.__mro__ for name in inspect.get_annotations(base))
    order = list(dict.fromkeys(stated))
    return sorted(options_of(options_type), key=lambda item: order.index(item.name))


def _argument(item: Option, prefix: str = "", by_recipe: bool = False) -> _Argument:
    spelt: dict[str, Any] = {"help": prefix + _help(item, by_recipe), "help_behavior_hint": ""}
    if item.flag != flag(item.name):
        spelt["name"] = item.flag.removeprefix("--")
    if item.kind is bool:
        return _Argument(item, Annotated[bool, tyro.conf.arg(**spelt)], item.default)
    metavar = _METAVARS[item.kind]
    if item.commas:
        metavar = f"{metavar},{metavar},..."
    elif item.choices:
        metavar = f"{{{','.join(item.choices)}}}"
    elif item.is_list:
        metavar += " ..." * (not item.repeated)
    spelt["metavar"] = item.metavar or metavar
    marker = tyro.conf.arg(**spelt)
    mark: Any = tyro.conf.Positional if item.positional else tyro.conf.UseAppendAction
    hint: Any = item.kind
    if item.is_list and (item.positional or item.repeated):
        return _Argument(item, Annotated[mark[tuple[hint, ...]], marker], ())
    hint = Annotated[Any, _reading(item, metavar), marker]
    if item.positional:
        hint = mark[hint]
    required = item.default is REQUIRED
    return _Argument(item, hint, inspect.Parameter.empty if required else None)


def _reading(item: Option, metavar: str) -> tyro.constructors.PrimitiveConstructorSpec[Any]:
    """How a value is read: by its kind alone. tyro would offer None, "not given", as well."""
    several = item.is_list and not item.commas

    def read(words: list[str]) -> Any:
        kind = str if item.commas else item.kind
        if item.adds and words[0].startswith("+"):
            kind = Added
        try:
            values = tuple(map(kind, words))
        except ValueError:
            # The words of the other messages about this option, whatever asked for a number.
            return item.check(words[0])
        return values if several else values[0]

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs="*" if several else 1,
        metavar=metavar,
        instance_from_str=read,
        is_instance=lambda value: True,
        str_from_instance=lambda value: [str(value)],
        choices=None if item.commas else item.choices or None,
    )


def _help(item: Option, by_recipe: bool) -> str:
    """The line of help, with the default and, if it has two ends, the range beside it."""
    default = default_text(item)
    if not default:
        return item.help  # which says itself what happens where it is left out
    low, high = (item.gt, item.ge) != (None, None), (item.lt, item.le) != (None, None)
    within = f"{item.range}; " if low and high else ""
    return f"{item.help} ({within}default: {default}{', or by recipe' * by_recipe})"


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
    found = _method_options().get(name)
    return found.owners if found else []


class _Owned(NamedTuple):
    option: Option
    owners: list[str]


def _method_options() -> dict[str, _Owned]:
    """The options of all methods by name, each with the methods that have it."""
    return _owned_options({name: method.options_type for name, method in METHODS.items()})


def _owned_options(by_owner: Mapping[str, type]) -> dict[str, _Owned]:
    """Options by name, each with all whose dataclass has it."""
    found: dict[str, _Owned] = {}
    for owner, options_type in by_owner.items():
        for item in _own_first(options_type):
            found.setdefault(item.name, _Owned(item, [])).owners.append(owner)
    return found
