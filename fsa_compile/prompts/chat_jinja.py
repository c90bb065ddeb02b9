"""`render_jinja`: runs a chat template as model files hold it, in Jinja's sandbox. The only module that imports `jinja2`."""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Mapping
from typing import Any, NoReturn

from fsa_compile.errors import TokenizerError, install_command
from fsa_compile.prompts import chat_bounds as bounds

_MOST_SOURCE = 1 << 20
"""Characters of a template: models' own have up to some 20,000."""
_MOST_INDENT = 100


def render_jinja(source: str, variables: Mapping[str, Any]) -> str:
    """The text that a template writes.

    A template comes with a model's files and is not trusted: it runs in an immutable sandbox, without attributes of Python's own
    objects, without files, for a bounded time and in bounded memory, and may write a bounded text.

    Args:
      source: Jinja text, with the names that `transformers` gives it: `raise_exception`, `strftime_now`, the filter `tojson`
        without HTML escapes, loop controls, `{% generation %}` blocks.
      variables: what it may read.

    Raises:
      ChatTemplateError: `jinja2` is missing, the template is no Jinja, or it failed or refused its input.
    """
    from fsa_compile.prompts.chat_errors import ChatTemplateError

    try:
        import jinja2
        import jinja2.exceptions
    except ImportError as error:
        what = f"running this chat template needs the package jinja2, which cannot be imported ({error})"
        fix = f'Install it with: {install_command("chat")}; or pass the name of a convention, such as template="gemma".'
        raise ChatTemplateError(what, fix=fix) from None
    if len(source) > _MOST_SOURCE:
        raise ChatTemplateError(f"the chat template has more than {_MOST_SOURCE:,} characters", fix="Do not use this file.")
    try:
        template = _compiled(source)
        parts, size = [], 0
        with bounds.bounded_time(jinja2.exceptions.SecurityError):
            for part in template.generate(**variables):
                parts.append(part)
                size += len(part)
                if size > bounds.MOST_CHARACTERS:
                    raise ChatTemplateError(f"the chat template writes more than {bounds.MOST_CHARACTERS:,} characters")
        return "".join(parts)
    except jinja2.exceptions.TemplateSyntaxError as error:
        what, where = f"the chat template is not well formed: {error.message}", f"line {error.lineno}"
        raise ChatTemplateError(what, where=where, fix="Take the template from the model's own files.") from None
    except TokenizerError:
        raise
    except jinja2.exceptions.SecurityError as error:
        what = f"the chat template does something that templates may not do: {error}"
        raise ChatTemplateError(what, fix="Do not use this file; take the template from a source that you trust.") from None
    except MemoryError:
        raise ChatTemplateError("the chat template takes too much memory", fix="Do not use this file.") from None
    except Exception as error:  # a template can raise anything that an expression can
        what = f"the chat template refuses the messages: {error}"
        raise ChatTemplateError(what, fix="Check the roles and their order against the model's description.") from None


@functools.lru_cache(maxsize=8)
def _compiled(source: str) -> Any:
    from jinja2.compiler import CodeGenerator
    from jinja2.exceptions import SecurityError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Bounded(ImmutableSandboxedEnvironment):
        code_generator_class = _looked_at(CodeGenerator)
        intercepted_binops = bounds.BINARY

        def sized(self, value: Any) -> Any:
            return bounds.check_size(value, SecurityError)

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            bounds.check_operator(operator, left, right, SecurityError)
            return super().call_binop(context, operator, left, right)

        def wrap_str_format(self, value: Any) -> Any:
            if isinstance(getattr(value, "__self__", None), str) and value.__name__ in ("format", "format_map"):
                bounds.check_arguments("format", (value.__self__,), {}, SecurityError)
            return super().wrap_str_format(value)

        def call(self, context: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
            owner = (function.__self__,) if isinstance(getattr(function, "__self__", None), str) else ()
            bounds.check_arguments(getattr(function, "__name__", ""), (*owner, *args), kwargs, SecurityError)
            return super().call(context, function, *args, **kwargs)

    class Generation(Extension):
        """`{% generation %}` … `{% endgeneration %}`, which marks what to train on: only its body counts here."""

        tags = {"generation"}  # noqa: RUF012 (as Jinja has it)

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = Bounded(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.filters |= {name: bounds.bounded_filter(name, f, SecurityError) for name, f in environment.filters.items()}
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment.from_string(source)


def _looked_at(generator: type) -> type:
    """A generator of code in which every list, tuple and dict that a template writes is looked at when it is made."""

    def sized(visit: Any) -> Any:
        def run(self: Any, node: Any, frame: Any) -> None:
            made = getattr(node, "ctx", "load") == "load"
            self.write("environment.sized(" if made else "")
            visit(self, node, frame)
            self.write(")" if made else "")

        return run

    displays = ("visit_List", "visit_Tuple", "visit_Dict")
    return type("Sized", (generator,), {name: sized(getattr(generator, name)) for name in displays})


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """JSON as `transformers` writes it; its arguments have the same names and order."""
    import jinja2.exceptions

    wide = isinstance(indent, int) and indent > _MOST_INDENT
    if wide or any(isinstance(text, str) and len(text) > _MOST_INDENT for text in (indent, *(separators or ()))):
        raise jinja2.exceptions.SecurityError("an indentation or a separator is too large")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> NoReturn:
    import jinja2.exceptions

    raise jinja2.exceptions.TemplateError(message)
