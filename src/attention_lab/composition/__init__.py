"""From checked settings to objects, and which of them go together."""
