"""Recording of a run, and its reports."""
