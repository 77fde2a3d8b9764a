"""From a plain config to checked settings, and from settings to objects."""
