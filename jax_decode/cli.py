"""The `jax-decode` command: checkpoint, constraint and prompts in; text, status and log-probabilities out.

The only module of this package that may import the other two halves, and only when the command runs.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fsa_compile.errors import in_options
from jax_decode.decoding.compilation import keep_programs
from jax_decode.errors import DecodeError

_EPILOG = """examples:
  jax-decode --pattern '(yes|no), because [a-z ]{3,60}[.]' 'Is the sky blue? '
  fsa-compile compile '[0-9]{4}-[0-9]{2}-[0-9]{2}' --tokenizer tokenizer.model --output date.npz
  jax-decode --constraint date.npz --checkpoint gemma3-1b/ --config gemma3-1b --tokenizer tokenizer.model 'Today is '
  jax-decode --schema person.json --max-new-tokens 96 -e 'Bio: Ada Lovelace was born in 1815.\\nJSON: '
  jax-decode --type shop:Order --prompt-file orders.txt
  jax-decode --pattern '[A-Z][a-z]+' --prompt-file prompts.txt --n 4 --temperature 0.8 --format json

A prompt file has one prompt per line; in a .jsonl file each line is a string in JSON, or an object with a "prompt", so that
prompts may have several lines. With --one-prompt the whole file, or standard input, is one prompt.
"""


_ESCAPE, _ESCAPED = re.compile(r"\\([nt\\])"), {"n": "\n", "t": "\t", "\\": "\\"}


_WORDS = {
    "num_samples": "--n",
    "TopK": "--top-k",
    "TopP": "--top-p",
    "MinP": "--min-p",
    "the p ": "the value ",
    "k must be": "the value must be",
    "\n  Categorical\n": "\n  --temperature\n",
    "number; for temperature 0 use Greedy()": "number, or 0 for the most probable token",
    ", or one per prompt": "",
    ", or pass a GemmaConfig": "",
}
"""What errors call things for which the command has options."""


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
    except KeyboardInterrupt:
        print("jax-decode: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if isinstance(error, OSError) or hasattr(error, "what"):
            print(f"jax-decode: error: {in_options(_said(error), vars(args), _WORDS)}", file=sys.stderr)
            return 2
        if os.environ.get("CONSTRAX_TRACEBACK"):
            raise
        said = f"jax-decode: this is a defect of the program, please report it: {type(error).__name__}: {error}"
        print(f"{said:.400}\n  CONSTRAX_TRACEBACK=1 shows where it happened.", file=sys.stderr)
        return 2
    return 0


def _said(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and not hasattr(error, "what"):
        return f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)
    return str(error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jax-decode",
        description="Samples text that satisfies a constraint from a JAX language model.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("prompts", nargs="*", help="prompts; with none given (and no --prompt-file) lines of standard input")
    parser.add_argument("--prompt-file", type=Path, help="a file with one prompt per line, or .jsonl")
    parser.add_argument("-e", "--escapes", action="store_true", help=r"\n in a prompt is a line break, \t a tab")
    parser.add_argument("--one-prompt", action="store_true", help="the file or standard input is one prompt of several lines")
    parser.add_argument("--version", action="version", version=f"jax-decode {_version()}")
    group = parser.add_argument_group("what the texts must be, compiled now but for --constraint (default: anything)")
    what = group.add_mutually_exclusive_group()
    what.add_argument("--pattern", help="regular expression the text must match in full")
    what.add_argument("--schema", type=Path, metavar="FILE", help="JSON Schema file")
    what.add_argument("--grammar", metavar="FILE", help="grammar file, or one of the library, such as library:json")
    what.add_argument("--choices", type=Path, metavar="FILE", help="UTF-8 file, one allowed text per line")
    what.add_argument("--type", metavar="MODULE:CLASS", help="Python type, such as shop:Order for class Order in shop.py")
    what.add_argument("--constraint", type=Path, metavar="FILE", help="compiled constraint, a file written by fsa-compile")
    model = parser.add_argument_group("model (default: the small one that comes with the package)")
    model.add_argument("--checkpoint", type=Path, help="Orbax or safetensors checkpoint of a Gemma model")
    model.add_argument("--config", help="published size, such as gemma3-270m, where the checkpoint does not say")
    model.add_argument("--dtype", help="dtype of the parameters, such as bfloat16; default: the checkpoint's")
    model.add_argument("--tokenizer", help="tokenizer file or folder, or 'small'; needed with --checkpoint")
    model.add_argument("--no-bos", action="store_true", help="do not put the tokenizer's begin token before prompts")
    how = parser.add_argument_group("sampling (default: greedy)")
    how.add_argument("--max-new-tokens", type=int, default=128, help="limit per text (default 128)")
    how.add_argument("--temperature", type=float, help="sample at this temperature; 0: the most probable token")
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

    from fsa_compile import load_tokenizer
    from jax_decode.decoding.generate import generate
    from jax_decode.tables.tables import to_device

    decoder, tokenizer_path = _model(args)
    tokenizer = load_tokenizer(tokenizer_path)
    constraint = _constraint(args, tokenizer)
    tables = None if constraint is None else to_device(constraint, logits_width=decoder.vocab_size)
    bar = _Bar() if sys.stderr.isatty() and not args.no_progress else None
    try:
        out = generate(
            decoder,
            prompts,
            tables,
            key=jax.random.key(args.seed),
            max_new_tokens=args.max_new_tokens,
            sampler=sampler,
            num_samples=args.n,
            tokenizer=tokenizer,
            bos_id=False if args.no_bos else None,
            allow_truncation=args.allow_truncation,
            progress=bar,
        )
    finally:
        if bar is not None:
            bar.close()
    for row, text in enumerate(out.text()):
        print(_json_line(out, row, prompts[row // args.n], text) if args.format == "json" else text)
        if args.format == "text" and out.status[row].name not in ("ACCEPTED", "FINISHED"):
            print(f"jax-decode: row {row} is {out.status[row].name.lower().replace('_', ' ')}", file=sys.stderr)
        elif args.format == "text" and out.squeezed[row] >= 0:
            kept = f"jax-decode: row {row} was kept short by --max-new-tokens {args.max_new_tokens}"
            print(f"{kept}, from token {out.squeezed[row]} on", file=sys.stderr)


def _version() -> str:
    try:
        return importlib.metadata.version("constrax")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _constraint(args: argparse.Namespace, tokenizer: Any) -> Any:
    """What the options say that texts must be, compiled; None for anything."""
    import fsa_compile

    if args.pattern is not None:
        return fsa_compile.compile_regex(args.pattern, tokenizer)
    if args.schema is not None:
        return fsa_compile.compile_json_schema(_read(args.schema), tokenizer)
    if args.choices is not None:
        return fsa_compile.compile_choices(_read(args.choices).removesuffix("\n").split("\n"), tokenizer)
    if args.type is not None:
        return fsa_compile.compile_type(_type(args.type), tokenizer)
    if args.grammar is not None and args.grammar.startswith("library:"):
        name = args.grammar.removeprefix("library:")
        text = fsa_compile.library.grammar_text(name)
        return fsa_compile.compile_grammar(text, tokenizer, **fsa_compile.library.options(name))
    if args.grammar is not None:
        if not Path(args.grammar).is_file():
            fix = f"Give a file; or library:{args.grammar}, if one of the library is meant."
            raise DecodeError("there is no such grammar file", where=f"--grammar {args.grammar}", fix=fix)
        return fsa_compile.compile_grammar(_read(Path(args.grammar)), tokenizer)
    if args.constraint is not None:
        return fsa_compile.CompiledConstraint.load(args.constraint, tokenizer)
    return None


def _read(path: Path) -> str:
    """A file's text in UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DecodeError(f"the file is not text in UTF-8 (byte {error.start})", where=str(path)) from None


def _type(name: str) -> Any:
    """The type that `module:Class` names; modules are looked for here, too."""
    where, fix = f"--type {name}", "Write MODULE:CLASS, such as shop:Order for class Order in shop.py."
    module, colon, attribute = name.partition(":")
    if not (colon and module and attribute):
        raise DecodeError("the type has no module and class", where=where, fix=fix)
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise DecodeError(f"the type cannot be imported ({error})", where=where, fix=fix) from None
    finally:
        sys.path.remove(os.getcwd())
    return found


def _model(args: argparse.Namespace) -> tuple[Any, Any]:
    """The decoder and the place of its tokenizer."""
    import models

    if not hasattr(models, "small_tokenizer_path"):
        what = "the package 'models' of constrax is hidden by another module of this name"
        raise DecodeError(what, where=str(getattr(models, "__file__", "")), fix="Rename that file, or run the command elsewhere.")
    if args.tokenizer == "small":
        args.tokenizer = models.small_tokenizer_path()
    if args.checkpoint is None:
        options = {} if args.dtype is None else {"dtype": args.dtype}
        return models.load_small(**options), args.tokenizer or models.small_tokenizer_path()
    return models.load(args.config, args.checkpoint, dtype=args.dtype), args.tokenizer


def _sampler(args: argparse.Namespace) -> Any:
    from jax_decode.sampling.samplers import Categorical, Greedy, MinP, TopK, TopP, check_sampler

    kinds: dict[str, Any] = {"top_k": TopK, "top_p": TopP, "min_p": MinP}
    given = [name for name in kinds if getattr(args, name) is not None]
    if len(given) > 1:
        raise DecodeError(f"{_names_of(given)} were given together", fix="Give one of them.")
    temperature = 1.0 if args.temperature is None else args.temperature
    sampler: Any = Greedy()
    if given and temperature == 0:
        what = "at temperature 0 the most probable token is taken"
        raise DecodeError(what, where=_names_of(given), fix="Leave one of them out.")
    if given:
        sampler = kinds[given[0]](getattr(args, given[0]), temperature)
    elif args.temperature:
        sampler = Categorical(temperature)
    check_sampler(sampler)
    return sampler


def _names_of(options: Sequence[str]) -> str:
    """Options as they are written."""
    return " and ".join("--" + name.replace("_", "-") for name in options)


def _prompts(args: argparse.Namespace) -> list[str]:
    prompts = list(args.prompts)
    if args.prompt_file is not None:
        prompts += _lines(lambda: args.prompt_file.read_text(encoding="utf-8"), str(args.prompt_file), args.one_prompt)
    elif not prompts and not sys.stdin.isatty():
        prompts = _lines(sys.stdin.read, "standard input", args.one_prompt)
    if not prompts:
        raise DecodeError("there is no prompt", fix="Give prompts as arguments, by --prompt-file or on standard input.")
    if args.escapes:
        return [_ESCAPE.sub(lambda found: _ESCAPED[found[1]], prompt) for prompt in prompts]
    if any(r"\n" in prompt for prompt in args.prompts):
        print(r"jax-decode: a prompt has the two characters \n; with -e they are a line break", file=sys.stderr)
    return prompts


def _lines(read: Callable[[], str], where: str, whole: bool) -> list[str]:
    try:
        text = read()
    except UnicodeDecodeError as error:
        raise DecodeError(
            f"the prompts are not text in UTF-8 (byte {error.start})", where=where, fix="Give one prompt per line, in UTF-8."
        ) from None
    if whole:
        return [text]
    if not where.endswith(".jsonl"):
        return text.splitlines()
    prompts = []
    for number, line in enumerate(filter(str.strip, text.split("\n")), 1):
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        prompt = found.get("prompt") if isinstance(found, dict) else found
        if not isinstance(prompt, str):
            fix = 'Write a string in JSON, or an object such as {"prompt": "..."}, on each line.'
            raise DecodeError("a line of the prompt file is no prompt", where=f"{where}, line {number}", fix=fix)
        prompts.append(prompt)
    return prompts


def _json_line(out: Any, row: int, prompt: str, text: str) -> str:
    return json.dumps(
        {
            "prompt": prompt,
            "text": text,
            "status": out.status[row].name.lower(),
            "tokens": out.tokens[row].tolist(),
            "stop_token": out.stop_token[row],
            "squeezed": None if out.squeezed[row] < 0 else int(out.squeezed[row]),
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
