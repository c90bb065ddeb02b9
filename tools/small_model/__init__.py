"""The small model: corpus, training and report. Not shipped."""
