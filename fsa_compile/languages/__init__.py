"""`Language`: unevaluated regular languages, operators, extension groups."""
