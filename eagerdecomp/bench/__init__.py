"""The measurements behind `eagerdecomp bench`: machinery, rivals, and a file for each measurement."""
