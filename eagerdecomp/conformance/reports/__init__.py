"""What a run of the suite found, told in each form that somebody reads: one file a form."""
