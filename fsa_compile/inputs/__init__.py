"""What strangers send: JSON read within limits, and what every public function makes of exceptions that are not our own."""
