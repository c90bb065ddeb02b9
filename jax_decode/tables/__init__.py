"""A constraint's arrays as they lie on the device."""
