"""From masked logits to a token."""

from jax_decode.sampling.sampling import Choice as Choice
from jax_decode.sampling.sampling import sample as sample
