"""The command fa4-cute. Each sub-command is a module with run(args) and add_arguments(parser)."""

import argparse
import importlib

_EXTRA = ("rich", "jinja2")  # of pyproject.toml's extra "cli"
COMMANDS = ("verify", "compile", "cache", "info")


def add_arch_argument(command: argparse.ArgumentParser) -> None:
    """The option --arch, of the sub-commands that work for one architecture."""
    command.add_argument("--arch", default="sm_100a", choices=("sm_100a", "sm_103a"), help="architecture compiled for")


def make_parser() -> argparse.ArgumentParser:
    """The command line with all sub-commands."""
    parser = argparse.ArgumentParser(
        prog="fa4-cute", description="Verify, compile and inspect the attention kernels; no GPU is needed."
    )
    commands = parser.add_subparsers(required=True)
    for name in COMMANDS:
        module = importlib.import_module(f".{name}", __name__)
        command = commands.add_parser(name, help=(module.run.__doc__ or "").splitlines()[0])
        module.add_arguments(command)
        command.set_defaults(function=module.run)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Entry point of the command; returns the exit status."""
    from .. import api  # noqa: F401  registers the operators

    parser = make_parser()
    args = parser.parse_args(argv)
    try:
        result: int = args.function(args)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in _EXTRA:
            raise
        parser.error(f"{error.name} is not installed; this command needs the extra: pip install 'fa4_cute[cli]'")
    return result
