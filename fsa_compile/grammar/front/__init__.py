"""Parts of Lark's syntax that other engines have added: values in braces, options of rules."""
