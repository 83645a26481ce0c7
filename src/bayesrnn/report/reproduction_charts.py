"""Results on Penn Treebank as charts, each of which can be a file of its own."""

from collections.abc import Callable, Sequence

from bayesrnn.report.axes import draw_axis, even_axis, share_axis, value_axis
from bayesrnn.report.charts import Series, line_chart
from bayesrnn.report.page import curves
from bayesrnn.report.published import PRUNED_SHARE
from bayesrnn.report.reproduction import GapLevel, ReproducedRun, Reproduction


def reproduction_charts(found: Reproduction) -> dict[str, str]:
    """SVG pictures by the name of their file; those for which there are figures."""
    runs = found.runs
    charts: dict[str, str] = {}
    if any(run.summary.points for run in runs):
        charts["curves.svg"] = curves([run.summary for run in runs])
    if any(run.gaps for run in runs):
        title = "Entropy gap, reversed test text"
        charts["entropy-gap.svg"] = _by_draws(runs, title, "gap (nats)", lambda level: level.gap)
        title = "Negative log-likelihood, test text"
        charts["likelihood.svg"] = _by_draws(runs, title, "NLL (nats)", lambda level: level.nll)
    if any(run.pruning is not None for run in runs):
        charts["pruning.svg"] = _pruning(runs)
    return charts


def _by_draws(
    runs: Sequence[ReproducedRun], title: str, label: str, figure: Callable[[GapLevel], float]
) -> str:
    """A figure against the number of draws; the mean weights (0) are joined to none."""

    def points(levels: Sequence[GapLevel]) -> list[tuple[float, float | None]]:
        mean = [(0, figure(level)) for level in levels if level.samples == 0]
        drawn = [(level.samples, figure(level)) for level in levels if level.samples]
        return [*mean, (0, None), *drawn]

    return line_chart(
        [Series(run.name, points(run.gaps)) for run in runs],
        title,
        "draws",
        label,
        x=draw_axis,
        y=even_axis,
        empty="no figures",
        height=320,
    )


def _pruning(runs: Sequence[ReproducedRun]) -> str:
    """Perplexity by the share that is dropped; hollow marks are 1% above the full network.

    Weights are ranked by |mean| / sigma, or by their size where there is no sigma.
    """
    pruned = [(run.name, run.pruning) for run in runs if run.pruning is not None]
    values = [v for _, found in pruned for v in found.curve.values() if v is not None]
    series = [Series(name, list(found.curve.items())) for name, found in pruned]
    series += [Series(name, [found.within], dashed=True) for name, found in pruned]
    edge = [(PRUNED_SHARE, one(values)) for one in (min, max) if values]
    return line_chart(
        [*series, Series(f"{PRUNED_SHARE:.0%} dropped", edge)],
        "Perplexity without the lowest-ranked weights, validation text",
        "share of the weights dropped",
        "perplexity",
        x=share_axis,
        y=value_axis,
        solid="by share",
        dashed="+1%",
        empty="no figures",
    )
