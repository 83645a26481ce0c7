"""What a shell needs to complete words, options and choices; anything else is a path to it.

The script has all of it in itself, so that completing starts no program.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

from bayesrnn.options import REQUIRED, CheckedOptions, Option, option
from bayesrnn.runs.options import command

SHELLS = ("bash", "zsh", "fish")

#: The words of a command, and its options.
Commands = Mapping[tuple[str, ...], Sequence[Option]]

_BASH = """\
_bayesrnn() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
    local words="" options=""
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{first} --help --version"
    elif [ "$COMP_CWORD" -eq 2 ]; then
        case "${{COMP_WORDS[1]}}" in
{groups}
        esac
    fi
    if [ -z "$words" ]; then
        case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}} " in
{commands}
        esac
    fi
    case "$word" in
        -*) words="${{options:-$words}}" ;;
    esac
    if [ -n "$words" ]; then
        COMPREPLY=($(compgen -W "$words" -- "$word"))
    fi
}}
complete -o default -o bashdefault -F _bayesrnn bayesrnn
"""
_ZSH = "autoload -U +X compinit bashcompinit && compinit && bashcompinit\n"


@dataclass(frozen=True, kw_only=True)
class CompletionOptions(CheckedOptions):
    """For which shell."""

    shell: str = option(REQUIRED, "the shell", choices=SHELLS, positional=True)


@command(CompletionOptions)
def print_completion(options: CompletionOptions) -> None:
    """Print what makes a shell complete commands, options and paths.

    bash: put into ~/.bashrc the line eval "$(bayesrnn completion bash)"

    zsh: put into ~/.zshrc the line eval "$(bayesrnn completion zsh)"

    fish: bayesrnn completion fish > ~/.config/fish/completions/bayesrnn.fish
    """
    from bayesrnn.cli.main import GROUPS, all_commands

    summaries = {words: one.summary for words, one in all_commands().items()}
    summaries |= {(word,): summary for word, summary in GROUPS.items()}
    commands = {words: one.load().options for words, one in all_commands().items()}
    print(completion_script(options.shell, commands, summaries), end="")


def completion_script(
    shell: str, commands: Commands, summaries: Mapping[tuple[str, ...], str]
) -> str:
    """The script for a shell."""
    if shell == "fish":
        return "".join(f"{line}\n" for line in _fish(commands, summaries))
    return _ZSH * (shell == "zsh") + _bash(commands)


def _bash(commands: Commands) -> str:
    groups = _groups(commands)
    return _BASH.format(
        first=" ".join(dict.fromkeys(words[0] for words in commands)),
        groups=indent(
            "\n".join(f'{group}) words="{" ".join(n)}" ;;' for group, n in groups.items()), " " * 12
        ),
        commands=indent("\n".join(map(_bash_case, commands, commands.values())), " " * 12),
    )


def _bash_case(words: Sequence[str], options: Sequence[Option]) -> str:
    """The options of a command, and after an option with choices, those."""
    flags = " ".join(["--help", *(item.flag for item in options if not item.positional)])
    chosen = [item for item in options if item.choices]
    cases = [f'        {_before(item)}) words="{" ".join(item.choices)}" ;;' for item in chosen]
    after = ['    case "$before" in', *cases, "    esac"] if cases else []
    return "\n".join([f'"{" ".join(words)} "*)', f'    options="{flags}"', *after, "    ;;"])


def _before(item: Option) -> str:
    """The word before a choice: its option, or, of one without a name, the command."""
    return "*" if item.positional else item.flag


def _fish(commands: Commands, summaries: Mapping[tuple[str, ...], str]) -> Iterable[str]:
    start = "complete -c bayesrnn"
    first = dict.fromkeys(words[0] for words in commands)
    for word in first:
        about = shlex.quote(summaries[word,])
        yield f"{start} -n __fish_use_subcommand -f -a {word} -d {about}"
    groups = _groups(commands)
    for group, names in groups.items():
        none = f"not __fish_seen_subcommand_from {' '.join(names)}"
        for name in names:
            about = shlex.quote(summaries[group, name])
            when = f"'__fish_seen_subcommand_from {group}; and {none}'"
            yield f"{start} -n {when} -f -a {name} -d {about}"
    for words, options in commands.items():
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in words)
        if len(words) == 1:  # a task may have the name of a command
            seen += f"; and not __fish_seen_subcommand_from {' '.join(groups)}"
        for item in options:
            given = " ".join(item.choices)
            name = "" if item.positional else f" -l {item.flag.removeprefix('--')}"
            if name or given:
                yield f"{start} -n '{seen}'{name}{_fish_value(item)} -d {_about(item)}"


def _fish_value(item: Option) -> str:
    """What follows an option: nothing, a choice, a path, or what the shell cannot know."""
    if item.kind is bool:
        return ""
    if item.choices:
        return f" -x -a '{' '.join(item.choices)}'"
    return " -r -F" if item.kind in (Path, str) else " -x"


def _about(item: Option) -> str:
    return shlex.quote(item.help.split(";")[0].split(" (")[0][:60])


def _groups(commands: Commands) -> dict[str, list[str]]:
    """The second words by the first, where there are any."""
    groups: dict[str, list[str]] = {}
    for words in commands:
        if len(words) > 1:
            groups.setdefault(words[0], []).append(words[1])
    return groups
