"""From a checkpoint to a report."""
