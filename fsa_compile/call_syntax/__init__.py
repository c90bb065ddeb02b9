"""Arguments of tool calls in the syntaxes that models write: JSON, Python keyword arguments, and bare keys with marked strings.

A schema is read as by `json_schema`. `argument_machines` makes the byte machine of the arguments of many tools, which share what
they have in common; `written_arguments` turns what was written back into JSON text.
"""
