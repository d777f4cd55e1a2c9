"""One script per claim, each measuring a peer or a baseline in the same run."""
