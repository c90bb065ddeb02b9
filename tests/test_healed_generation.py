"""Generation behind healed prompts with the small model."""

from __future__ import annotations

import re

import fsa_compile
import jax_decode
import models
from jax_decode import Status


def test_a_space_at_the_end_of_a_prompt_does_no_harm():
    """Healed, the prompt is the one without the space, and the space belongs to the text."""
    tokenizer = fsa_compile.load_tokenizer(models.small_tokenizer_path())
    pattern = r"(yes|no), because [a-z ]{3,40}\."
    constraint = fsa_compile.compile_regex(pattern, tokenizer)
    question = "Question: Is the kettle red?\nAnswer:"
    healed = fsa_compile.heal_batch([f"{question} ", "Question: Is the kett"], constraint, tokenizer)
    assert healed[0].prompt == tokenizer.encode(question)
    plain = fsa_compile.compile_regex(" " + pattern, tokenizer)
    out = jax_decode.generate(
        models.load_small(),
        [h.prompt for h in healed] + [tokenizer.encode(question)],
        jax_decode.to_device([h.constraint for h in healed] + [plain]),
        max_new_tokens=32,
        bos_id=tokenizer.vocabulary.bos_id,
    )
    assert out.status == [Status.ACCEPTED] * 3
    texts = [h.text(row) for h, row in zip(healed, out.tokens)]
    assert all(re.fullmatch(pattern, text) for text in texts), texts
    assert out.tokens[0].tolist() == out.tokens[2].tolist()
    assert f" {texts[0]}" == out.text(tokenizer)[2]
