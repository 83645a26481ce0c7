"""The check that metrics over examples share."""

from torch import Tensor

from bayesrnn.errors import ConfigError, CorpusError


def per_example(infinite: bool = False, **values: Tensor) -> list[Tensor]:
    """The values as float64 on the CPU; each has to be [examples], none NaN (or infinite)."""
    shapes = {name: list(of.shape) for name, of in values.items()}
    if any(len(shape) != 1 or shape != shapes[next(iter(shapes))] for shape in shapes.values()):
        said = " and ".join(f"{name} has the shape {shape}" for name, shape in shapes.items())
        raise ConfigError(f"{said}; each has to be [examples]")
    for name, of in values.items():
        if not len(of):
            raise CorpusError(f"{name} has no examples; give at least one")
        if bad := int((of.isnan() if infinite else ~of.isfinite()).sum()):
            kind = "NaN" if infinite else "NaN or infinite"
            raise ConfigError(f"{name} is {kind} for {bad} of {len(of)} examples; give numbers")
    return [of.detach().cpu().double() for of in values.values()]
