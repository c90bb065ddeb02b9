"""Constraints inside the samplers of other libraries. Nothing is imported here: take the module of your library.

`jax_decode.integrations.gemma`: google-deepmind/gemma (`from gemma import gm`).
`jax_decode.integrations.tunix`: google-tunix.
"""
