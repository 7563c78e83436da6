"""horovod.torch.elastic.sampler, which is dtrun.torch's here."""

from dtrun.torch import rank, size  # noqa: F401
from dtrun.torch.elastic import ElasticSampler  # noqa: F401
