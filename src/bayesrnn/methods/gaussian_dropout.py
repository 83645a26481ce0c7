"""gaussian-dropout: multiplicative Gaussian noise in place of dropped units.

Srivastava et al. (2014), section 10; Kingma, Salimans & Welling (2015).
"""

from typing import ClassVar

from bayesrnn.methods.masking import Masking, MaskOptions
from bayesrnn.nn.masked import MaskStyle


class GaussianDropout(Masking[MaskOptions]):
    """Multiply units by N(1, p / (1 - p)), the mean and variance of a scaled Bernoulli mask.

    The factors are placed and held over a sequence like those of `variational-dropout`. No KL
    divergence is charged: weight decay is that of a posterior with spikes at zero, which this is
    not. Its own divergence, from the log-uniform prior under which the noise is a posterior
    (Kingma et al. 2015), depends on the rate alone, and the rate is not learnt.
    """

    name: ClassVar[str] = "gaussian-dropout"
    summary: ClassVar[str] = "Gaussian noise on units, held over a sequence (Kingma et al. 2015)"
    options_type: ClassVar[type] = MaskOptions
    trains_like: ClassVar[str] = "variational-dropout"

    @property
    def style(self) -> MaskStyle:
        """One mask for a sequence."""
        return MaskStyle("gaussian", gates=self.options.gates)
