"""Probabilities of texts and of constraints, and samples from the model's own distribution over a constraint's texts.

What a text's probability is. A constraint, a prompt, a limit of tokens and a limit of depth make a set of token sequences: those
that `generate` can write. None of them begins another, so their probabilities under the model add up: to the *mass* of the
constraint. The stop token is part of a sequence where the text could also go on. Where nothing but a stop is allowed, it is left
out: a choice between "yes" and "no" has the mass P(yes) + P(no), whatever the model would write next. With `always_stop` it is
never left out, as in the sequences of `generate`. A text that the limit of tokens ends counts as it stands.

Log-probabilities are in nats; *raw* ones are over all of the model's logits, the others over the allowed tokens alone.
"""
