"""Requests, loops, drafts and streams."""
