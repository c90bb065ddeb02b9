"""The logits processor with real torch, and in real `transformers` generation, where they are installed."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
from interop.constraints import all_kinds, vocabulary

from fsa_compile import compile_regex
from fsa_compile.errors import ConstraintError
from fsa_compile.interop import ConstraintLogitsProcessor, Matcher

PATTERN = "(yes|no|ab{1,3}c)(,(yes|no))*"


def test_torch_is_imported_late():
    """Neither the processor's module nor its constructor imports torch (there may be none), nor anything else heavy."""
    code = (
        "import sys\n"
        "from fsa_compile.interop import ConstraintLogitsProcessor, Matcher\n"
        "ConstraintLogitsProcessor(None)\n"
        "print([m for m in ('torch', 'jax', 'pynini', 'transformers') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_without_torch_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "constrax\[torch\] @ git\+'):
        ConstraintLogitsProcessor(None)(None, None)


def test_masks_go_straight_into_tensors():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pattern = all_kinds()["pattern"]
    words = torch.full((2, -(-pattern.vocab_size // 32)), -1, dtype=torch.int32)
    assert Matcher(pattern).fill_next_token_bitmask(words, 1)
    assert (words[0] == -1).all()
    bits = (words[1][:, None] >> torch.arange(32)) & 1
    assert bits.flatten()[: pattern.vocab_size].bool().tolist() == pattern.walk().allowed().tolist()


def test_scores_of_every_row():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    v, pattern = vocabulary(), all_kinds()["pattern"]
    prompt = [[5, 6], [7, 8], [9, 9]]
    processor = ConstraintLogitsProcessor([pattern, None, all_kinds()["words"]])
    scores = torch.randn(3, v.size + 5)
    kept = scores.clone()
    texts = [[], [], []]
    for step in range(3):
        out = processor(torch.tensor([p + t for p, t in zip(prompt, texts)]), scores)
        assert torch.equal(scores, kept)
        for row, constraint in ((0, pattern), (2, all_kinds()["words"])):
            walk = constraint.walk()
            for token in texts[row]:
                if not walk.finished:
                    walk.advance(token)
            allowed = np.append(walk.allowed(), np.zeros(5, bool))
            if walk.finished:
                allowed[list(constraint.stop_ids)] = True
            assert (out[row] > -torch.inf).tolist() == allowed.tolist(), (step, row)
            assert torch.equal(out[row][torch.from_numpy(allowed)], kept[row][torch.from_numpy(allowed)])
        assert torch.equal(out[1], kept[1])
        texts[0].append(v.tokens.index(b"yes") if not texts[0] else v.stop_ids[0])
        texts[1].append(3)
        texts[2].append(v.tokens.index(b"yes") if not texts[2] else v.stop_ids[0])
    with pytest.raises(ConstraintError, match="reset"):
        processor(torch.tensor([[1]] * 3), scores)
    processor.reset()
    processor(torch.tensor([[1]] * 3), scores)
    with pytest.raises(ConstraintError, match="scores are for 4 ids"):
        processor(torch.tensor([[1]] * 3), scores[:, :4])


@pytest.mark.parametrize("beams", [1, 3])
def test_transformers_generate(beams):
    """A random GPT-2 in sampling and in beam search: every text is complete and in the language, within the limit."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    v = vocabulary()
    torch.manual_seed(0)
    stop = v.stop_ids[0]
    config = transformers.GPT2Config(vocab_size=v.size, n_positions=64, n_embd=16, n_layer=1, n_head=2, bos_token_id=stop, eos_token_id=stop, pad_token_id=0)
    model = transformers.GPT2LMHeadModel(config).eval()
    constraint = compile_regex(PATTERN, v)
    prompts = torch.tensor([[1, 2, 3], [4, 5, 6]])
    processor = ConstraintLogitsProcessor([constraint, constraint], beams=beams, max_new_tokens=9)
    how = {"do_sample": True} if beams == 1 else {"num_beams": beams, "num_return_sequences": beams}
    out = model.generate(
        prompts, attention_mask=torch.ones_like(prompts), logits_processor=[processor], max_new_tokens=10, eos_token_id=stop, **how
    )
    for row in out[:, 3:].tolist():
        ids = row[: min((row.index(s) for s in v.stop_ids if s in row), default=len(row))]
        assert re.fullmatch(PATTERN, v.decode(ids)), v.decode(ids)
