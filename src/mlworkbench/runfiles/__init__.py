"""What is done with a run's files: fetch its outputs, keep some as an asset, bring its code back, bundle, clean up."""
