"""Reports of a run of the suite, with a module for each format."""
