"""Record the values of a run's calls in a folder, and find the first call that differs between two runs.

`ValueRecorder` writes a run, `run_folder` reads it, and `differences` compares two runs.
"""
