"""Integer-array arithmetic shared by all stages: sorting, ranges, hashing."""
