"""Reports of a run of the suite, one file per format."""
