"""From a task to padded batches: sampling, disjoint splits, batches of like lengths."""
