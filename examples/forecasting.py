"""A forecast of a series with intervals, by several methods, beside seasonal naive.

    python examples/forecasting.py                      # the births that come with the package
    python examples/forecasting.py sales.csv --horizon 28 --methods bbb --plot sales.png

A network learns all series of the file at once. The last windows of each are kept apart: forecast
from what lies before them, they say whether the network is better than the value a season ago, and
how often its intervals hold.
"""

import argparse
from importlib.resources import files

import bayesrnn as br


def main() -> None:
    """Train, test on the last windows, and forecast what comes next."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", default=None, help="CSV: a column of dates, one of y")
    parser.add_argument("--horizon", type=int, default=14)
    parser.add_argument("--methods", nargs="+", default=["plain", "bbb"])
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--windows", type=int, default=400, help="of the past, in each epoch")
    parser.add_argument("--samples", type=int, default=10, help="draws of the network")
    parser.add_argument("--plot", default=None, help="a picture; pip install 'bayesrnn[plot]'")
    options = parser.parse_args()
    births = files("bayesrnn.data").joinpath("bundled/us-births.csv.gz")
    series = br.read_series(options.file or births)
    size = {"hidden": options.hidden, "epochs": options.epochs, "windows": options.windows}
    drawn = {"samples": options.samples, "paths": 20}
    table = ["| method | MASE | seasonal naive | 80% holds | calibrated | epistemic |"]
    table.append("|---|---:|---:|---:|---:|---:|")
    for method in options.methods:
        model = br.Forecaster(horizon=options.horizon, method=method, **size).fit(series)
        tested = model.backtest(**drawn)
        fitted = tested.calibrated
        table.append(
            f"| {method} | {tested.network.mase:.2f} | {tested.seasonal.mase:.2f} "
            f"| {tested.network.coverage['80']:.0%} "
            f"| {'-' if fitted is None else format(fitted.coverage['80'], '.0%')} "
            f"| {tested.epistemic_share:.1%} |"
        )
    print(*table, sep="\n")
    found = model.forecast(levels=(80, 95), **drawn)
    print(f"{options.methods[-1]}:", *found.sentences(), sep="\n")
    if options.plot is not None:
        found.plot().figure.savefig(options.plot)


if __name__ == "__main__":
    main()
