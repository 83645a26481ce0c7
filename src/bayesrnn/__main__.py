"""`python -m bayesrnn`, and where the program begins."""

import sys


def main() -> int:
    """Run the program; Ctrl-C is quiet from the first moment on."""
    try:
        from bayesrnn.cli.main import main as run
    except KeyboardInterrupt:
        print("bayesrnn: stopped", file=sys.stderr)
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
