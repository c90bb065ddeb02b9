"""The `jax-decode` command: checkpoint, constraint and prompts in; text, status and log-probabilities out.

The only module of this package that may import the other two halves, and only when the command runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jax_decode.decoding.compilation import keep_programs
from jax_decode.errors import DecodeError

_EPILOG = """examples:
  jax-decode --pattern '(yes|no), because [a-z ]{3,60}[.]' 'Is the sky blue? '
  fsa-compile compile '[0-9]{4}-[0-9]{2}-[0-9]{2}' --tokenizer tokenizer.model --output date.npz
  jax-decode --constraint date.npz --checkpoint gemma3-1b/ --config gemma3-1b --tokenizer tokenizer.model 'Today is '
  jax-decode --pattern '[A-Z][a-z]+' --prompt-file prompts.txt --n 4 --temperature 0.8 --format json
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
      argv: arguments without the program's name; None for `sys.argv`.

    Returns:
      0, or 2 when an argument, file or constraint is wrong (one message on standard error says which).
    """
    args = _parser().parse_args(argv)
    try:
        _run(args)
    except (ValueError, OSError) as error:
        if isinstance(error, ValueError) and not hasattr(error, "what"):
            raise  # not one of ours: a defect, whose trace is wanted
        print(f"jax-decode: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("jax-decode: interrupted", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jax-decode",
        description="Samples text that satisfies a constraint from a JAX language model.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("prompts", nargs="*", help="prompts; with none given (and no --prompt-file) lines of standard input")
    parser.add_argument("--prompt-file", type=Path, help="a file with one prompt per line")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--pattern", help="regular expression the text must match in full (compiled now)")
    what.add_argument("--constraint", type=Path, help="compiled constraint, a file written by fsa-compile")
    model = parser.add_argument_group("model (default: the small one that comes with the package)")
    model.add_argument("--checkpoint", type=Path, help="Orbax or safetensors checkpoint of a Gemma model")
    model.add_argument("--config", help="published size, such as gemma3-270m, where the checkpoint does not say")
    model.add_argument("--dtype", help="dtype of the parameters, such as bfloat16; default: the checkpoint's")
    model.add_argument("--tokenizer", help="tokenizer file or folder; needed with --checkpoint")
    model.add_argument("--no-bos", action="store_true", help="do not put the tokenizer's begin token before prompts")
    how = parser.add_argument_group("sampling (default: greedy)")
    how.add_argument("--max-new-tokens", type=int, default=128, help="limit per text (default 128)")
    how.add_argument("--temperature", type=float, help="sample at this temperature")
    how.add_argument("--top-k", type=int, help="sample among the k most probable tokens")
    how.add_argument("--top-p", type=float, help="sample among the most probable tokens of this total probability")
    how.add_argument("--min-p", type=float, help="sample among tokens at least this fraction as probable as the best")
    how.add_argument("--n", type=int, default=1, help="texts per prompt (default 1)")
    how.add_argument("--seed", type=int, default=0, help="seed of the draws (default 0)")
    how.add_argument("--allow-truncation", action="store_true", help="allow limits below the shortest complete text")
    out = parser.add_argument_group("output")
    out.add_argument("--format", choices=("text", "json"), default="text", help="text, or one JSON object per line")
    out.add_argument("--no-progress", action="store_true", help="no progress bar (there is none without a terminal)")
    return parser


def _run(args: argparse.Namespace) -> None:
    keep_programs()
    sampler = _sampler(args)  # cheap checks first
    prompts = _prompts(args)
    if args.checkpoint is not None and args.tokenizer is None:
        raise DecodeError("--checkpoint was given without --tokenizer", fix="Name the model's tokenizer file.")
    if args.config is not None and args.checkpoint is None:
        raise DecodeError("--config was given without --checkpoint", fix="Name the checkpoint, or leave --config out.")
    if not -(1 << 63) <= args.seed < 1 << 63:
        raise DecodeError(f"the seed {args.seed} does not fit 64 bits", fix="Give a smaller --seed.")
    import jax

    from fsa_compile import CompiledConstraint, load_tokenizer
    from jax_decode.decoding.generate import generate
    from jax_decode.tables.tables import to_device

    decoder, tokenizer_path = _model(args)
    tokenizer = load_tokenizer(tokenizer_path)
    tables = None
    if args.pattern is not None:
        from fsa_compile import compile_regex

        tables = to_device(compile_regex(args.pattern, tokenizer), logits_width=decoder.vocab_size)
    elif args.constraint is not None:
        tables = to_device(CompiledConstraint.load(args.constraint, tokenizer), logits_width=decoder.vocab_size)
    vocabulary = tokenizer.vocabulary
    bar = _Bar() if sys.stderr.isatty() and not args.no_progress else None
    try:
        out = generate(
            decoder,
            [list(tokenizer.encode(prompt)) for prompt in prompts],
            tables,
            key=jax.random.key(args.seed),
            max_new_tokens=args.max_new_tokens,
            sampler=sampler,
            num_samples=args.n,
            stop_ids=None if tables is not None else list(vocabulary.stop_ids),
            bos_id=None if args.no_bos else vocabulary.bos_id,
            allow_truncation=args.allow_truncation,
            progress=bar,
        )
    finally:
        if bar is not None:
            bar.close()
    for row, text in enumerate(out.text(tokenizer)):
        print(_json_line(out, row, prompts[row // args.n], text) if args.format == "json" else text)
        if args.format == "text" and out.status[row].name not in ("ACCEPTED", "FINISHED"):
            print(f"jax-decode: row {row} is {out.status[row].name.lower().replace('_', ' ')}", file=sys.stderr)


def _model(args: argparse.Namespace) -> tuple[Any, Any]:
    """The decoder and the place of its tokenizer."""
    import models

    if args.checkpoint is None:
        options = {} if args.dtype is None else {"dtype": args.dtype}
        return models.load_small(**options), args.tokenizer or models.small_tokenizer_path()
    return models.load(args.config, args.checkpoint, dtype=args.dtype), args.tokenizer


def _sampler(args: argparse.Namespace) -> Any:
    from jax_decode.sampling.samplers import Categorical, Greedy, MinP, TopK, TopP, check_sampler

    kinds: dict[str, Any] = {"top_k": TopK, "top_p": TopP, "min_p": MinP}
    given = [name for name in kinds if getattr(args, name) is not None]
    if len(given) > 1:
        names = " and ".join("--" + name.replace("_", "-") for name in given)
        raise DecodeError(f"{names} were given together", fix="Give one of them.")
    temperature = 1.0 if args.temperature is None else args.temperature
    sampler: Any = Greedy()
    if given:
        sampler = kinds[given[0]](getattr(args, given[0]), temperature)
    elif args.temperature is not None:
        sampler = Categorical(temperature)
    check_sampler(sampler)
    return sampler


def _prompts(args: argparse.Namespace) -> list[str]:
    prompts = list(args.prompts)
    if args.prompt_file is not None:
        prompts += _lines(lambda: args.prompt_file.read_text(encoding="utf-8"), str(args.prompt_file))
    elif not prompts and not sys.stdin.isatty():
        prompts = _lines(sys.stdin.read, "standard input")
    if not prompts:
        raise DecodeError("there is no prompt", fix="Give prompts as arguments, by --prompt-file or on standard input.")
    return prompts


def _lines(read: Callable[[], str], where: str) -> list[str]:
    try:
        return read().splitlines()
    except UnicodeDecodeError as error:
        raise DecodeError(
            f"the prompts are not text in UTF-8 (byte {error.start})", where=where, fix="Give one prompt per line, in UTF-8."
        ) from None


def _json_line(out: Any, row: int, prompt: str, text: str) -> str:
    return json.dumps(
        {
            "prompt": prompt,
            "text": text,
            "status": out.status[row].name.lower(),
            "tokens": out.tokens[row].tolist(),
            "stop_token": out.stop_token[row],
            "logprobs": [round(float(x), 6) for x in out.logprobs[row]],
            "raw_logprobs": [round(float(x), 6) for x in out.raw_logprobs[row]],
            "total_logprob": round(float(out.total_logprob[row]), 6),
            "raw_total_logprob": round(float(out.raw_total_logprob[row]), 6),
        },
        ensure_ascii=False,
    )


class _Bar:
    """A progress bar on standard error: tqdm where it is installed, else one line that counts."""

    def __init__(self) -> None:
        self._done = 0
        self._bar: Any = None

    def __call__(self, done: int, total: int) -> None:
        if self._bar is None:
            try:
                from tqdm import tqdm

                self._bar = tqdm(total=total, unit="token", leave=False)
            except ImportError:
                print(f"\r{done}/{total} tokens", end="", file=sys.stderr, flush=True)
                return
        self._bar.update(done - self._done)
        self._done = done

    def close(self) -> None:
        """Removes the bar."""
        if self._bar is not None:
            self._bar.close()
        elif self._done:
            print(file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
