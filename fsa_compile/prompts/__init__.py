"""Prompts: healing of their last tokens, chats, text pipelines."""
